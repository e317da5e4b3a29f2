/* SPDX-License-Identifier: MIT */
/* What a description can be refused for, before anything is copied. Every check goes on after a
 * fault as far as what it reads is sound, so that all of them are listed at once. */
#include "pipe/describe/check.h"

#include "pipe/describe/groups.h"
#include "pipe/describe/microbatch.h"
#include "pipe/describe/ties.h"

#include <stdio.h>
#include <string.h>

enum { STAGES_MAX = 65535 };

/* ---- checks ---- */

void weir__check_tensor(const struct weir_tensor *tensor, int64_t rows, const char *what,
                        struct weir_faults *faults) {
    size_t bytes;
    int status = weir__tensor_bytes(tensor, rows, &bytes);
    if (status == WEIR_ERR_OVERFLOW) {
        weir_faults_add(faults, "%s: its bytes overflow: use fewer rows or a smaller shape", what);
    } else if (status != WEIR_OK) {
        weir_faults_add(faults, "%s: %s: give a known dtype, at most %d dimensions, each >= 1",
                        what, weir_status_text(status), WEIR_RANK_MAX);
    } else if (tensor->differentiable && !weir_dtype_is_float(tensor->dtype)) {
        weir_faults_add(faults, "%s: %s tensors carry no gradient: clear `differentiable`", what,
                        weir_dtype_name(tensor->dtype));
    }
}

static void check_calls(const struct weir_pipe_options *options, uint32_t s,
                        struct weir_faults *faults) {
    assert(s < options->stage_count);
    const struct weir_stage_calls *calls = options->stages[s].calls;
    if (calls == NULL || calls->forward == NULL) {
        weir_faults_add(faults, "stage %u: a forward callback is required", s);
        return;
    }
    if (options->infer_only || options->stages[s].no_backward) return;
    bool split = calls->backward_input != NULL && calls->backward_weight != NULL;
    if (calls->backward == NULL && !split) {
        weir_faults_add(faults,
                        "stage %u: training needs a backward callback, or both of the "
                        "split pair; or set no_backward or infer_only",
                        s);
    }
    bool sums = weir__gradient_groups(options) > 1 && options->stages[s].gradient_bytes > 0;
    if (sums && calls->combine == NULL)
        weir_faults_add(faults,
                        "stage %u: groups of gradients need a combine callback, which adds them "
                        "up: give it, or gradient_groups 1",
                        s);
}

/* What would be waited for, or read, and is never written. */
static void check_frozen(const struct weir_pipe_options *options, uint32_t s,
                         struct weir_faults *faults) {
    assert(options->stages[s].no_backward);
    const struct weir_stage *stage = &options->stages[s], *before = s > 0 ? stage - 1 : NULL;
    static const char mend[] = "clear `differentiable` there, or no_backward";
    if (before != NULL && (!weir__is_sized(before) || before->no_backward)) before = NULL;
    for (uint32_t k = 0; before != NULL && before->outputs != NULL && k < before->output_count; k++)
        if (before->outputs[k].differentiable)
            weir_faults_add(faults,
                            "stage %u has no backward and gives output %u of stage %u no gradient: "
                            "%s",
                            s, k, s - 1, mend);
    for (uint32_t k = 0; stage->outputs != NULL && k < stage->output_count; k++)
        if (stage->outputs[k].differentiable)
            weir_faults_add(faults, "stage %u has no backward and its output %u no gradient: %s", s,
                            k, mend);
    for (uint32_t j = 0; stage->skips != NULL && j < stage->skip_count; j++)
        if (stage->skips[j].tensor.differentiable)
            weir_faults_add(faults, "stage %u has no backward and its skip '%s' no gradient: %s", s,
                            stage->skips[j].name != NULL ? stage->skips[j].name : "", mend);
    for (uint32_t k = 0; k < options->input_count; k++)
        if (options->inputs[k].stage == s && options->inputs[k].tensor.differentiable)
            weir_faults_add(faults, "stage %u has no backward and gives input %u no gradient: %s",
                            s, k, mend);
}

/* NULL is "". */
static bool same_text(const char *a, const char *b) {
    return strcmp(a != NULL ? a : "", b != NULL ? b : "") == 0;
}

/* A stage gets each skip once: several readers inside it are its own business. */
static void check_skips(const struct weir_stage *stage, uint32_t s, struct weir_faults *faults) {
    if (stage->skip_count > 0 && stage->skips == NULL)
        weir_faults_add(faults, "stage %u: skip_count is %u but skips is NULL", s,
                        stage->skip_count);
    for (uint32_t j = 0; stage->skips != NULL && j < stage->skip_count; j++) {
        const struct weir_skip_use *use = &stage->skips[j];
        if (use->name == NULL) weir_faults_add(faults, "stage %u, skip %u: it has no name", s, j);
        if ((unsigned)use->verb > WEIR_SKIP_POP)
            weir_faults_add(faults, "stage %u, skip %u: unknown verb: stash, read or pop", s, j);
        for (uint32_t i = 0; use->name != NULL && i < j; i++) {
            const struct weir_skip_use *other = &stage->skips[i];
            if (other->verb == WEIR_SKIP_STASH || use->verb == WEIR_SKIP_STASH) continue;
            if (same_text(other->name, use->name) && same_text(other->name_space, use->name_space))
                weir_faults_add(faults,
                                "stage %u: skip '%s' is used twice: declare one read or "
                                "pop and share it inside the stage",
                                s, use->name);
        }
    }
}

/* Where replicas find what they share. */
static void check_sections(const struct weir_stage *stage, uint32_t s, struct weir_faults *faults) {
    size_t end = 0;
    bool right = stage->section_count == 0 || stage->sections != NULL;
    if (stage->section_count == 0 && stage->gradient_bytes > stage->parameter_bytes)
        weir_faults_add(faults,
                        "stage %u: it has more gradients than parameters: name its sections", s);
    for (uint32_t i = 0; right && i < stage->section_count; i++) {
        const struct weir_section *section = &stage->sections[i];
        right = section->offset >= end && weir__add(section->offset, section->bytes, &end) &&
                end <= stage->gradient_bytes &&
                (!section->parameters || end <= stage->parameter_bytes);
    }
    if (!right)
        weir_faults_add(faults,
                        "stage %u: its sections must ascend, without overlap, within its gradients "
                        "and, with parameters, within those",
                        s);
}

static void check_stage(const struct weir_pipe_options *options, uint32_t s,
                        struct weir_faults *faults) {
    assert(s < options->stage_count);
    const struct weir_stage *stage = &options->stages[s];
    char what[64];
    if (!weir__is_sized(stage)) {
        weir_faults_add(faults, "stage %u: " WEIR__BEGIN_WITH, s, "WEIR_STAGE_INIT");
        return;
    }
    check_calls(options, s, faults);
    check_skips(stage, s, faults);
    if (stage->no_backward) check_frozen(options, s, faults);
    if (!stage->no_backward && weir__replicas(options) > 1) check_sections(stage, s, faults);
    if (stage->output_count == 0 || stage->outputs == NULL) {
        weir_faults_add(faults, "stage %u: a border needs at least one tensor", s);
        return;
    }
    for (uint32_t k = 0; k < stage->output_count; k++) {
        snprintf(what, sizeof what, "stage %u, output %u", s, k);
        weir__check_tensor(&stage->outputs[k], options->rows, what, faults);
    }
}

/* Rows that the caller brings; as many as can be where there is no such number. */
static int64_t own_rows(const struct weir_input *input, int64_t rows) {
    assert(rows >= 1);
    int64_t factor = input->rows_factor < 1 ? 1 : input->rows_factor;
    if (input->replicated) return 1;
    return factor > INT64_MAX / rows ? INT64_MAX : rows * factor;
}

static void check_input(const struct weir_pipe_options *options, uint32_t k,
                        struct weir_faults *faults) {
    assert(k < options->input_count);
    const struct weir_input *input = &options->inputs[k];
    char what[64];
    snprintf(what, sizeof what, "input %u", k);
    if (input->stage >= options->stage_count) {
        weir_faults_add(faults, "%s: enters at stage %u, but there %s %u stage%s", what,
                        input->stage, options->stage_count == 1 ? "is" : "are",
                        options->stage_count, weir__s(options->stage_count));
    }
    if (input->rows_factor < 0) weir_faults_add(faults, "%s: rows_factor is negative", what);
    weir__check_tensor(&input->tensor, own_rows(input, options->rows), what, faults);
    if (input->replicated && input->tensor.differentiable) {
        weir_faults_add(faults,
                        "%s: a replicated input has no gradient by rows: clear "
                        "`differentiable`",
                        what);
    }
}

/* MB-2: an input of its own row count must give the mini-batch's micro-batches: as many of them,
 * and each `rows_factor` times as long, or rows would meet others than their own. */
bool weir__check_rows(const struct weir_pipe_options *options, uint32_t k, int64_t rows,
                      struct weir_faults *faults) {
    assert(k < options->input_count && rows >= 1);
    const struct weir_input *input = &options->inputs[k];
    uint32_t chunks = options->chunks;
    int64_t factor = input->rows_factor;
    if (input->replicated || factor < 1) return true;
    int64_t own = own_rows(input, rows), size = weir__chunk_first(rows, chunks, 1);
    uint32_t wanted = weir__chunk_count(rows, chunks), made = weir__chunk_count(own, chunks);
    if (factor > INT64_MAX / rows) {
        weir_faults_add(faults, "input %u: rows_factor %lld times %lld rows is too many", k,
                        (long long)factor, (long long)rows);
    } else if (made != wanted) {
        weir_faults_add(faults,
                        "input %u: its %lld row%s in %u chunk%s make %u micro-batch%s, the "
                        "mini-batch's %lld make %u: choose chunks that divide both",
                        k, (long long)own, weir__s((uint64_t)own), chunks, weir__s(chunks), made,
                        weir__es(made), (long long)rows, wanted);
    } else if (weir__chunk_first(own, chunks, 1) != size * factor) {
        weir_faults_add(faults,
                        "input %u: its %lld row%s in %u chunk%s make micro-batches of %lld, "
                        "the mini-batch's %lld make ones of %lld: choose chunks that "
                        "divide both",
                        k, (long long)own, weir__s((uint64_t)own), chunks, weir__s(chunks),
                        (long long)weir__chunk_first(own, chunks, 1), (long long)rows,
                        (long long)size);
    } else {
        return true;
    }
    return false;
}

static void check_workers(const struct weir_pipe_options *options, struct weir_faults *faults) {
    if (options->device_count > 0 && options->devices == NULL)
        weir_faults_add(faults, "device_count is %u but devices is NULL", options->device_count);
    if ((unsigned)options->wait > WEIR_WAIT_PARK)
        weir_faults_add(faults, "unknown way to wait: auto, spin or park");
    if ((unsigned)options->link > WEIR_LINK_COPY)
        weir_faults_add(faults, "unknown kind of link: auto, pointer or copy");
    if ((unsigned)options->copy_by > WEIR_COPY_BY_BATCH)
        weir_faults_add(faults, "unknown way to copy: choice, engine, kernel or batch");
    if (options->clip_norm < 0.0 || options->clip_norm != options->clip_norm)
        weir_faults_add(faults, "clip_norm must be >= 0 (0: no clipping)");
    if ((unsigned)options->checkpoint > WEIR_CHECKPOINT_NEVER)
        weir_faults_add(faults, "unknown checkpoint mode: always, except_last or never");
    for (uint32_t s = 0; options->stage_checkpoint != NULL && s < options->stage_count; s++)
        if ((unsigned)options->stage_checkpoint[s] > WEIR_CHECKPOINT_NEVER)
            weir_faults_add(faults,
                            "stage %u: unknown checkpoint mode: always, except_last or "
                            "never",
                            s);
}

static void check_options(const struct weir_pipe_options *options, struct weir_faults *faults) {
    if (options->stage_count == 0 || options->stages == NULL)
        weir_faults_add(faults, "a pipe needs at least one stage");
    if (options->stage_count > STAGES_MAX)
        weir_faults_add(faults, "%u stages: at most %d", options->stage_count, STAGES_MAX);
    if (options->chunks < 1) weir_faults_add(faults, "chunks must be at least 1");
    if (options->rows < 1) weir_faults_add(faults, "rows must be at least 1");
    if (options->input_count > 0 && options->inputs == NULL)
        weir_faults_add(faults, "input_count is %u but inputs is NULL", options->input_count);
    check_workers(options, faults);
    weir__groups_check(options, faults);
}

/* Clipping by a norm that nobody computes would be silently none. */
static void check_clipping(const struct weir_pipe_options *options, struct weir_faults *faults) {
    bool any = false;
    for (uint32_t s = 0; s < options->stage_count; s++) {
        const struct weir_stage *stage = &options->stages[s];
        bool learns = weir__is_sized(stage) && !stage->no_backward;
        any |=
            learns && stage->calls != NULL && stage->calls->norm != NULL && stage->norm_count > 0;
    }
    if (options->clip_norm > 0.0 && !options->infer_only && !any)
        weir_faults_add(faults,
                        "clip_norm is %g but no stage has a norm callback and a norm_count: "
                        "give one, or clear clip_norm",
                        options->clip_norm);
}

static void check_entries(const struct weir_pipe_options *options, bool rows_known,
                          struct weir_faults *faults) {
    bool first_has_input = false;
    uint32_t before = faults->count;
    for (uint32_t s = 0; s < options->stage_count; s++) check_stage(options, s, faults);
    for (uint32_t k = 0; k < options->input_count; k++) {
        check_input(options, k, faults);
        if (rows_known) weir__check_rows(options, k, options->rows, faults);
        first_has_input |= options->inputs[k].stage == 0;
    }
    check_clipping(options, faults);
    if (rows_known) weir__groups_check_rows(options, options->rows, faults);
    if (faults->count == before) weir__ties_check(options, faults);
    if (!first_has_input)
        weir_faults_add(faults, "stage 0: a border needs at least one tensor: no input enters");
}

/* The schedule's own refusals, next to the description's. */
static void check_schedule(const struct weir_pipe_options *options, struct weir_faults *faults) {
    assert(faults == NULL || faults->count > 0);
    struct weir_table_options want = WEIR_TABLE_OPTIONS_INIT;
    bool countable = options->rows >= 1 && options->chunks >= 1 && options->stage_count >= 1;
    if (options->table_csv != NULL || !countable) return;
    want.allocator = options->allocator;
    want.schedule = options->schedule != NULL ? options->schedule : want.schedule;
    want.stages = options->stage_count;
    want.workers = options->workers;
    want.micro_batches = weir__groups_of(options, weir__replica(options), options->rows).count;
    want.search = options->search;
    weir__table_options_check(&want, faults);
}

bool weir__check_options(const struct weir_pipe_options *options, struct weir_faults *faults) {
    uint32_t before = faults->count;
    bool readable = options->stage_count > 0 && options->stages != NULL &&
                    options->stage_count <= STAGES_MAX &&
                    (options->input_count == 0 || options->inputs != NULL);
    check_options(options, faults);
    struct weir_pipe_options sound = *options; /* tensors are checked even without a row count */
    if (sound.rows < 1) sound.rows = 1;
    if (readable) check_entries(&sound, options->rows >= 1 && options->chunks >= 1, faults);
    if (faults->count > before) check_schedule(options, faults);
    return readable;
}
