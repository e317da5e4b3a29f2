/* SPDX-License-Identifier: MIT */
/* Steps of prompts are as large as a product likes its rows; what is left over at their end goes in
 * halves, so that few row counts are prepared however long the prompts are. */
#include "cmd/generator.h"

#include "base/base.h"
#include "cli/net_run.h"

#include <assert.h>
#include <stdlib.h>

/** Rows of a prompt's micro-batch: from here on a product gains little. */
enum { ROWS_PER_CHUNK = 32 };

/* ---- building ---- */

static int find_vocab(struct generator *g, const struct weir_model *model,
                      struct weir_faults *faults) {
    struct weir_tensor input, target, output;
    const char *loss;
    char text[96];
    uint32_t layers = weir_model_layer_count(model);
    struct weir_layer_facts *facts = calloc(layers + 1, sizeof *facts);
    if (facts == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = weir_model_infer(model, WEIR_F32, facts, faults);
    weir_model_border(model, &input, &target, &loss);
    output = layers > 0 ? facts[layers - 1].output : input;
    free(facts);
    if (status != WEIR_OK) return status;
    bool tokens = input.dtype == WEIR_I64 && (input.rank == 1 || input.rank == 2);
    int64_t context = tokens ? input.shape[input.rank - 1] : 0; /* of 2: packed rows */
    bool rows = output.rank == 2 && output.shape[0] == context;
    if (!tokens || !rows || !weir_dtype_is_float(output.dtype) || output.shape[1] > UINT32_MAX ||
        context >= UINT32_MAX) {
        weir_faults_add(faults,
                        "the model does not continue texts: it would have to take tokens, i64 [T], "
                        "and give numbers [T, vocabulary], but gives %s",
                        weir__tensor_text(&output, text, sizeof text));
        return WEIR_ERR_CONFIG;
    }
    g->context = (uint32_t)context;
    g->vocab = (uint32_t)output.shape[1];
    return WEIR_OK;
}

/* Tokens that stay when a context slides. */
static uint32_t kept_of(uint32_t context) {
    return (context + 1) / 2;
}

/* A multiple of the chunks, so that no fewer rows make more or larger micro-batches. */
static int choose_rows(struct generator *g, const struct generator_options *options,
                       uint32_t *chunks) {
    uint64_t rows = (uint64_t)options->net.pipe.chunks * ROWS_PER_CHUNK;
    uint64_t anew = options->slides ? (uint64_t)options->texts * kept_of(g->context) : 0;
    uint64_t tokens = anew > options->prompt_tokens ? anew : options->prompt_tokens;
    if (rows > tokens) rows = tokens;
    if (rows < options->texts) rows = options->texts;
    *chunks = options->net.pipe.chunks < rows ? options->net.pipe.chunks : (uint32_t)rows;
    rows = (rows + *chunks - 1) / *chunks * *chunks;
    if (rows > UINT32_MAX) return WEIR_ERR_OVERFLOW;
    g->rows = (uint32_t)rows;
    return WEIR_OK;
}

static int take_memory(struct generator *g) {
    size_t logits;
    if (!weir__multiply(g->rows, g->vocab, &logits)) return WEIR_ERR_OVERFLOW;
    g->input = calloc(g->rows, sizeof *g->input);
    g->sequence = calloc(g->rows, sizeof *g->sequence);
    g->place = calloc(g->rows, sizeof *g->place);
    g->live = calloc(g->texts, sizeof *g->live);
    g->scratch = calloc(g->vocab, sizeof *g->scratch);
    g->drawn = calloc((size_t)g->rows + 1, sizeof *g->drawn);
    g->logits = calloc(g->vocab, sizeof *g->logits);
    g->output = calloc(logits, weir_dtype_bytes(g->dtype));
    bool all = g->input != NULL && g->sequence != NULL && g->place != NULL && g->live != NULL &&
               g->scratch != NULL && g->drawn != NULL && g->logits != NULL && g->output != NULL;
    return all ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

int generator_init(struct generator *g, const struct generator_options *options,
                   struct weir_faults *faults) {
    *g = (struct generator){
        .texts = options->texts, .dtype = options->net.dtype, .ranks = options->ranks};
    assert(options->texts > 0 && options->net.pipe.chunks > 0);
    struct weir_net_options net = options->net;
    int status = find_vocab(g, options->model, faults);
    if (status != WEIR_OK) return status;
    status = choose_rows(g, options, &net.pipe.chunks);
    if (status != WEIR_OK) return status;
    net.pipe.rows = g->rows;
    net.pipe.infer_only = true;
    net.sequences = g->texts;
    net.optimizer.kind = WEIR_OPTIMIZER_NONE;
    status = take_memory(g);
    return status == WEIR_OK ? weir_net_new(options->model, &net, faults, &g->net) : status;
}

void generator_clean_up(struct generator *g) {
    weir_net_destroy(g->net);
    free(g->input);
    free(g->sequence);
    free(g->place);
    free(g->live);
    free(g->scratch);
    free(g->drawn);
    free(g->logits);
    free(g->output);
    *g = (struct generator){0};
}

/* ---- steps ---- */

/** A call of generator_continue. */
struct session {
    struct generator *g;
    const struct generator_run *run;
    struct generator_text *texts;
    uint32_t count;
    struct weir_error *error;
};

/* The token at a place of a text's context. */
static void set_row(const struct session *s, uint32_t row, uint32_t text, uint32_t place) {
    s->g->input[row] = s->texts[text].tokens[s->texts[text].first + place];
    s->g->sequence[row] = text;
    s->g->place[row] = place;
}

/* Tokens of its context. */
static uint32_t held(const struct generator_text *text) {
    return text->count - text->first;
}

/* Rows before `first` are the last of no text: they need no logits. */
static int step(const struct session *s, uint32_t rows, uint32_t first) {
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = rows;
    batch.output_first = first;
    batch.input = s->g->input;
    batch.sequence = s->g->sequence;
    batch.place = s->g->place;
    batch.output = s->g->output;
    batch.flags = ranks_flags();
    struct weir_step_result result;
    int status = weir_net_infer(s->g->net, &batch, &result);
    if (s->g->ranks != NULL) ranks_heard(s->g->ranks, status, result.flags);
    if (status != WEIR_OK) net_run_error(&result.error, s->error);
    return status;
}

static void slide(struct generator_text *text, uint32_t context) {
    text->first = text->count - kept_of(context);
    text->read = 0;
}

/* Whether the row is the last of its text, so that a token comes after it. */
static bool is_last(const struct session *s, uint32_t row) {
    return s->g->place[row] + 1 == held(&s->texts[s->g->sequence[row]]);
}

/* The token after the one that was row `row`. */
static int draw(const struct session *s, uint32_t row) {
    struct generator *g = s->g;
    const struct generator_text *text = &s->texts[g->sequence[row]];
    size_t first = (size_t)row * g->vocab;
    for (uint32_t i = 0; i < g->vocab; i++)
        g->logits[i] = weir__number_at(g->dtype, g->output, first + i);
    sampler_penalize(&s->run->sampler, text->tokens, text->count, g->logits, g->scratch);
    return sampler_draw(&s->run->sampler, &text->identity, text->count, g->logits, g->scratch,
                        &g->drawn[row]);
}

/* Takes it, and sees whether the text ends. */
static void take(const struct session *s, uint32_t row) {
    struct generator *g = s->g;
    uint32_t number = g->sequence[row], token = g->drawn[row];
    struct generator_text *text = &s->texts[number];
    text->tokens[text->count++] = token;
    text->read = held(text) - 1;
    bool ends = s->run->visit != NULL && s->run->visit(s->run->context, number, token);
    if (ends)
        text->end = GENERATOR_VISIT;
    else if (text->count - text->prompt == s->run->tokens)
        text->end = GENERATOR_TOKENS;
    else if (held(text) > g->context && s->run->slides)
        slide(text, g->context);
    else if (held(text) > g->context)
        text->end = GENERATOR_CONTEXT;
}

/* A token for each text whose last one is among the rows: rank 0's, on all ranks. */
static int draw_rows(const struct session *s, uint32_t rows) {
    struct generator *g = s->g;
    bool draws = g->ranks == NULL || ranks_leads(g->ranks);
    int status = WEIR_OK;
    for (uint32_t row = 0; draws && status == WEIR_OK && row < rows; row++)
        if (is_last(s, row)) status = draw(s, row);
    g->drawn[rows] = (uint32_t)-status;
    int shared = g->ranks == NULL
                     ? WEIR_OK
                     : ranks_share(g->ranks, g->drawn, ((size_t)rows + 1) * sizeof *g->drawn);
    if (shared != WEIR_OK) return shared;
    if (g->drawn[rows] != 0)
        return weir__fail(s->error, -(int)g->drawn[rows],
                          "the model's output is not finite: its weights are damaged, or its "
                          "training had diverged");
    for (uint32_t row = 0; row < rows; row++)
        if (is_last(s, row)) take(s, row);
    return WEIR_OK;
}

static bool stopped(const struct session *s) {
    bool asked =
        s->g->ranks != NULL ? ranks_stopped(s->g->ranks) : s->run->stop != NULL && s->run->stop();
    for (uint32_t i = 0; asked && i < s->count; i++)
        if (s->texts[i].end == GENERATOR_GOING) s->texts[i].end = GENERATOR_INTERRUPTED;
    return asked;
}

/* The largest row count of few: all rows, or a power of two. */
static uint32_t rows_of_prompts(const struct generator *g, uint64_t left) {
    uint32_t rows = 1;
    if (left >= g->rows) return g->rows;
    while (rows <= left / 2) rows *= 2;
    return rows;
}

/* What is not read yet of texts, in the order of reading: of each all but the last token, text by
 * text, then the last ones. */
struct unread {
    uint32_t count; /* texts, whose numbers stand in `live` */
    uint32_t text;  /* of these, the next row's … */
    uint32_t place; /* … and where in it */
    uint64_t left;  /* rows */
    bool lasts;     /* those that are left are the last ones */
};

static void begin_text(const struct session *s, struct unread *r, uint32_t text) {
    const struct generator_text *texts = s->texts;
    const uint32_t *live = s->g->live;
    while (text < r->count && texts[live[text]].read + 1 == held(&texts[live[text]])) text++;
    r->text = text;
    r->place = text < r->count ? texts[live[text]].read : 0;
    r->lasts = text == r->count;
    if (r->lasts) r->text = 0;
}

static void begin_reading(const struct session *s, uint32_t count, struct unread *r) {
    *r = (struct unread){.count = count};
    for (uint32_t i = 0; i < count; i++) {
        const struct generator_text *text = &s->texts[s->g->live[i]];
        r->left += held(text) - text->read;
    }
    begin_text(s, r, 0);
}

static void read_row(const struct session *s, struct unread *r, uint32_t row) {
    uint32_t text = s->g->live[r->text], last = held(&s->texts[text]) - 1;
    set_row(s, row, text, r->lasts ? last : r->place);
    r->left--;
    if (r->lasts)
        r->text++;
    else if (++r->place == last)
        begin_text(s, r, r->text + 1);
}

/* The contexts of `count` texts, whose numbers stand in `live`, and a token for each. */
static int read_contexts(const struct session *s, uint32_t count, uint64_t *tokens) {
    struct unread unread;
    begin_reading(s, count, &unread);
    while (unread.left > 0 && !stopped(s)) {
        uint32_t rows = rows_of_prompts(s->g, unread.left);
        uint64_t body = unread.left > count ? unread.left - count : 0;
        uint32_t first = body < rows ? (uint32_t)body : rows;
        for (uint32_t row = 0; row < rows; row++) read_row(s, &unread, row);
        int status = step(s, rows, first);
        if (status == WEIR_OK && first < rows) status = draw_rows(s, rows);
        if (status != WEIR_OK) return status;
        *tokens += rows;
    }
    return WEIR_OK;
}

/* Texts that go on: those whose context is read, or the others. */
static uint32_t find_live(const struct session *s, bool read) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct generator_text *text = &s->texts[i];
        bool is_read = text->read + 1 == held(text);
        if (text->end == GENERATOR_GOING && is_read == read) s->g->live[count++] = i;
    }
    return count;
}

static int draw_one_each(const struct session *s, uint32_t rows) {
    for (uint32_t row = 0; row < rows; row++)
        set_row(s, row, s->g->live[row], held(&s->texts[s->g->live[row]]) - 1);
    int status = step(s, rows, 0);
    return status == WEIR_OK ? draw_rows(s, rows) : status;
}

static int draw_on(const struct session *s, uint64_t *tokens) {
    uint64_t read_anew = 0;
    int status = WEIR_OK;
    for (uint32_t count; status == WEIR_OK && !stopped(s); *tokens += count) {
        if ((count = find_live(s, false)) > 0)
            status = read_contexts(s, count, &read_anew);
        else if ((count = find_live(s, true)) > 0)
            status = draw_one_each(s, count);
        else
            break;
    }
    return status;
}

int generator_continue(struct generator *g, const struct generator_run *run,
                       struct generator_text *texts, uint32_t count, struct generator_times *times,
                       struct weir_error *error) {
    struct session session = {g, run, texts, count, error};
    uint64_t start = weir__now_ns();
    assert(count <= g->texts && run->tokens > 0 && run->sampler.vocab <= g->vocab);
    for (uint32_t i = 0; i < count; i++) {
        assert(held(&texts[i]) > 0 && held(&texts[i]) <= g->context);
        assert(texts[i].count == texts[i].prompt && texts[i].end == GENERATOR_GOING);
        assert(texts[i].read < held(&texts[i]));
    }
    for (uint32_t i = 0; i < count; i++) g->live[i] = i;
    int status = read_contexts(&session, count, &times->prompt_tokens);
    uint64_t begun = weir__now_ns();
    if (status != WEIR_OK) goto out;
    status = draw_on(&session, &times->tokens);
out:
    times->prompt_seconds += (double)(begun - start) * 1e-9;
    times->seconds += (double)(weir__now_ns() - begun) * 1e-9;
    return status;
}
