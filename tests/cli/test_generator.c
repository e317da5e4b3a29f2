/* SPDX-License-Identifier: MIT */
/*
 * Goal: a text that is continued with a cache is the one that the whole model would write, however
 * the work is cut and whatever is continued beside it. Method: small GPTs with weights large enough
 * that no two logits are near; the generator's logits are compared with those of a plain net on
 * whole rows. The generator belongs to the command and is in no library, so its sources are
 * compiled in here.
 */
#include "../../tools/cli/interrupt.c"
#include "../../tools/cmd/generator.c"
#include "../../tools/cli/net_run.c"
#include "../../tools/cli/output.c"
#include "../../tools/cli/ranks_steps.c"
#include "engine/threads_world.h"
#include "harness.h"
#include "net/net_trial.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { LAYERS = 2, CONTEXT = 12, VOCAB = 40, TEXTS = 5, ROOM = CONTEXT + 1 };

static struct weir_model *make_model(uint32_t layers, uint32_t residual_block) {
    struct weir_gpt_options gpt = {layers, 16, 4, CONTEXT, VOCAB, false, 0.1, residual_block};
    struct weir_model *model = NULL;
    EXPECT_STATUS(weir_model_gpt(test_allocator(), &gpt, NULL, &model), WEIR_OK);
    return model;
}

static void set_number(const struct weir_parameter *parameter, uint64_t k, double number) {
    if (parameter->dtype == WEIR_F64)
        ((double *)parameter->data)[k] = number;
    else
        ((float *)parameter->data)[k] = (float)number;
}

/** Sixteen times the initial weights: the logits then lie far apart. What mixes residuals begins as
 * 0, and averages: other numbers. */
static void fill_parameters(struct weir_net *net) {
    EXPECT_STATUS(weir_net_init(net, 7), WEIR_OK);
    for (uint32_t i = 0; i < weir_net_parameter_count(net); i++) {
        struct weir_parameter parameter;
        if (!EXPECT_STATUS(weir_net_parameter(net, i, &parameter), WEIR_OK)) return;
        if (parameter.data == NULL) continue; /* on another rank */
        bool mixes = strstr(parameter.name, "_res_proj.") != NULL;
        for (uint64_t k = 0; k < parameter.count; k++)
            if (mixes)
                set_number(&parameter, k, 0.5 * (double)(k % 5) - 1);
            else if (parameter.rank > 1)
                set_number(&parameter, k, 16 * weir__number_at(parameter.dtype, parameter.data, k));
    }
}

/** How the work is cut. */
struct cut {
    uint32_t stages, chunks, texts;
    enum weir_dtype dtype;
    bool reference;
    struct ranks *ranks;
};

static bool make_generator(struct generator *g, const struct weir_model *model,
                           const struct cut *cut, uint64_t prompt_tokens) {
    struct generator_options options = {model,      trial_options(cut->stages, 1, cut->chunks),
                                        cut->texts, prompt_tokens,
                                        false,      cut->ranks};
    struct weir_faults faults = WEIR_FAULTS_INIT;
    options.net.pipe.bind = "none";
    if (cut->ranks != NULL) options.net.pipe.world = &cut->ranks->world;
    options.net.dtype = cut->dtype;
    options.net.reference = cut->reference;
    bool good = EXPECT_STATUS(generator_init(g, &options, &faults), WEIR_OK);
    if (faults.kept > 0) TEST_FAIL("%s", faults.lines[0]);
    weir_faults_clean_up(&faults);
    if (good) fill_parameters(g->net);
    return good;
}

struct texts {
    struct generator_text list[TEXTS];
    uint32_t tokens[TEXTS][ROOM];
};

/** Prompts of 1, 3, 5 … tokens; each text's are its own number's, wherever it stands. */
static void make_texts(struct texts *texts, const uint32_t *numbers, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t *tokens = texts->tokens[i], prompt = 1 + 2 * numbers[i];
        for (uint32_t k = 0; k < prompt; k++) tokens[k] = (numbers[i] * 11 + k * 7 + 3) % VOCAB;
        texts->list[i] = (struct generator_text){
            .tokens = tokens, .prompt = prompt, .count = prompt, .identity = {numbers[i], 0}};
    }
}

static const uint32_t in_order[TEXTS] = {0, 1, 2, 3, 4};

static const struct sampler greedy = {1, 0.0, 0, 1.0, VOCAB}, warm = {1, 1.0, 0, 1.0, VOCAB};

static void continue_all(struct generator *g, const struct generator_run *run, struct texts *texts,
                         uint32_t count) {
    struct generator_times times = {0};
    struct weir_error error = {0};
    for (uint32_t done = 0, part; done < count; done += part) {
        part = count - done < g->texts ? count - done : g->texts;
        int status = generator_continue(g, run, texts->list + done, part, &times, &error);
        if (!EXPECT_STATUS(status, WEIR_OK)) TEST_FAIL("%s", error.message);
    }
}

/* What the newest token of text `number` was drawn from: the row of the last step that was the
 * token before it. Rows behind a step's are of steps before. */
static void copy_logits(const struct generator *g, const struct generator_text *text,
                        uint32_t number, double logits[VOCAB]) {
    uint32_t row = 0, place = text->count - text->first - 2;
    while (row < g->rows && (g->sequence[row] != number || g->place[row] != place)) row++;
    if (!EXPECT(row < g->rows)) return;
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = weir__number_at(g->dtype, g->output, (size_t)row * VOCAB + i);
}

/* ---- against the whole model ---- */

struct record {
    struct generator *generator;
    const struct texts *texts;
    double logits[TEXTS][ROOM][VOCAB]; /**< that the token at a place was drawn from */
};

static bool record_logits(void *context, uint32_t text, uint32_t token) {
    struct record *record = context;
    uint32_t place = record->texts->list[text].count - 1;
    (void)token;
    copy_logits(record->generator, &record->texts->list[text], text, record->logits[text][place]);
    return false;
}

static void infer_whole(const struct weir_model *model, const struct cut *cut,
                        const struct texts *texts, double output[TEXTS][CONTEXT][VOCAB]) {
    struct weir_net_options options = trial_options(1, TEXTS, 1);
    options.dtype = cut->dtype;
    options.reference = cut->reference;
    options.pipe.infer_only = true;
    struct weir_net *net = trial_net(model, &options);
    static int64_t input[TEXTS][CONTEXT];
    static float narrow[TEXTS][CONTEXT][VOCAB];
    for (uint32_t i = 0; i < TEXTS; i++)
        for (uint32_t k = 0; k < CONTEXT; k++)
            input[i][k] = k < texts->list[i].count ? texts->tokens[i][k] : 0;
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = TEXTS;
    batch.input = input;
    batch.output = cut->dtype == WEIR_F64 ? (void *)output : narrow;
    struct weir_step_result result;
    if (net == NULL) return;
    fill_parameters(net);
    EXPECT_STATUS(weir_net_infer(net, &batch, &result), WEIR_OK);
    for (size_t i = 0; cut->dtype != WEIR_F64 && i < sizeof narrow / sizeof(float); i++)
        (&output[0][0][0])[i] = (double)(&narrow[0][0][0])[i];
    weir_net_destroy(net);
}

/** The largest logit's token, and how far it is above the next and above zero. */
static uint32_t find_best(const double *logits, double *margin, double *largest) {
    uint32_t best = 0;
    double second = -DBL_MAX;
    for (uint32_t i = 1; i < VOCAB; i++) {
        if (logits[i] > logits[best]) best = i;
        *largest = fmax(*largest, fabs(logits[i]));
    }
    for (uint32_t i = 0; i < VOCAB; i++)
        if (i != best) second = fmax(second, logits[i]);
    *margin = logits[best] - second;
    return best;
}

/** Sums of 64 products at most, twice per layer and once more, each rounding with eps / 2. */
static const double f32_tolerance = (2 * LAYERS + 1) * 64 * (double)FLT_EPSILON / 2;

static void compare_with_whole(const struct weir_model *model, const struct cut *cut) {
    static double whole[TEXTS][CONTEXT][VOCAB];
    static struct record record;
    struct texts texts;
    struct generator g;
    make_texts(&texts, in_order, TEXTS);
    record = (struct record){&g, &texts, {{{0}}}};
    if (!make_generator(&g, model, cut, 25)) return;
    continue_all(&g,
                 &(struct generator_run){
                     .sampler = greedy, .tokens = ROOM, .visit = record_logits, .context = &record},
                 &texts, TEXTS);
    infer_whole(model, cut, &texts, whole);
    for (uint32_t i = 0; i < TEXTS && !test_has_failed(); i++) {
        EXPECT_EQ_UINT(texts.list[i].count, ROOM);
        for (uint32_t place = texts.list[i].prompt; place < ROOM; place++) {
            double margin, largest = 0, tolerance = cut->reference ? 0 : f32_tolerance;
            uint32_t best = find_best(whole[i][place - 1], &margin, &largest);
            for (uint32_t v = 0; v < VOCAB && !test_has_failed(); v++)
                EXPECT_NEAR(record.logits[i][place][v], whole[i][place - 1][v],
                            tolerance * largest);
            EXPECT(margin > 20 * tolerance * largest);
            EXPECT_EQ_UINT(texts.tokens[i][place], best);
        }
    }
    generator_clean_up(&g);
}

static void test_every_token_is_the_whole_models_best(void) {
    static const struct cut cuts[] = {{1, 1, TEXTS, WEIR_F64, true},
                                      {2, 3, TEXTS, WEIR_F64, true},
                                      {1, 1, TEXTS, WEIR_F32, true},
                                      {1, 1, TEXTS, WEIR_F32, false},
                                      {3, 2, TEXTS, WEIR_F32, false}};
    for (uint32_t residual_block = 0; residual_block <= 1; residual_block++) {
        struct weir_model *model = make_model(LAYERS, residual_block);
        for (size_t i = 0; i < WEIR__COUNT_OF(cuts) && !test_has_failed(); i++)
            compare_with_whole(model, &cuts[i]);
        weir_model_destroy(model);
    }
}

/* ---- cuts ---- */

static void expect_same_texts(const struct texts *got, const uint32_t *numbers, uint32_t count,
                              const struct texts *wanted) {
    for (uint32_t i = 0; i < count; i++) {
        const struct generator_text *right = &wanted->list[numbers[i]];
        EXPECT_EQ_UINT(got->list[i].count, right->count);
        EXPECT_EQ_BYTES(got->tokens[i], right->tokens, right->count * sizeof right->tokens[0]);
    }
}

static void test_a_text_does_not_depend_on_how_the_work_is_cut(void) {
    struct weir_model *model = make_model(LAYERS, 0);
    struct generator_run run = {.sampler = warm, .tokens = 6};
    struct texts wanted, got;
    struct generator g;
    for (int i = 0; i < 16 && !test_has_failed(); i++) {
        /* in f64 always; in f32 the bits of a product do not depend on its rows either */
        struct cut cut = {1, 1, TEXTS, i % 2 == 0 ? WEIR_F64 : WEIR_F32, i % 2 == 0};
        uint32_t numbers[TEXTS] = {0, 1, 2, 3, 4}, count = 1 + (uint32_t)test_random_below(TEXTS);
        make_texts(&wanted, in_order, TEXTS);
        if (!make_generator(&g, model, &cut, 25)) break;
        continue_all(&g, &run, &wanted, TEXTS);
        generator_clean_up(&g);
        for (uint32_t k = 0; k < TEXTS; k++) {
            uint32_t other = (uint32_t)test_random_below(TEXTS), kept = numbers[k];
            numbers[k] = numbers[other];
            numbers[other] = kept;
        }
        cut.stages = 1 + (uint32_t)test_random_below(4);
        cut.chunks = 1 + (uint32_t)test_random_below(40);
        cut.texts = 1 + (uint32_t)test_random_below(count);
        make_texts(&got, numbers, count);
        if (!make_generator(&g, model, &cut, 1 + test_random_below(25))) break;
        continue_all(&g, &run, &got, count);
        generator_clean_up(&g);
        expect_same_texts(&got, numbers, count, &wanted);
    }
    weir_model_destroy(model);
}

/* What the ranks continue, and with what they end. */
struct joint {
    const struct weir_model *model;
    struct cut cut;
    struct texts texts[3];
};

static int continue_on_rank(void *context, struct weir_world *world) {
    struct joint *joint = context;
    struct weir_error error = {0};
    struct ranks ranks = {.of = {.error = &error}, .world = *world, .joined = true};
    const struct generator_run run = {.sampler = warm, .tokens = 6};
    struct cut cut = joint->cut;
    struct generator g;
    cut.ranks = &ranks;
    if (!make_generator(&g, joint->model, &cut, 25)) return WEIR_ERR_CONFIG;
    make_texts(&joint->texts[world->rank], in_order, TEXTS);
    continue_all(&g, &run, &joint->texts[world->rank], TEXTS);
    generator_clean_up(&g);
    return WEIR_OK;
}

static void test_all_ranks_continue_the_texts_of_one_process(void) {
    struct weir_model *model = make_model(LAYERS, 0);
    struct joint joint = {.model = model, .cut = {1, 1, TEXTS, WEIR_F32, false, NULL}};
    const struct generator_run run = {.sampler = warm, .tokens = 6};
    struct texts wanted;
    struct generator g;
    make_texts(&wanted, in_order, TEXTS);
    if (!make_generator(&g, model, &joint.cut, 25)) goto done;
    continue_all(&g, &run, &wanted, TEXTS);
    generator_clean_up(&g);
    for (int i = 0; i < 6 && !test_has_failed(); i++) {
        uint32_t count = 2 + (uint32_t)test_random_below(2);
        const struct threads_options how = {
            .ranks = count, .seed = test_random_u64(), .delay = (uint32_t)test_random_below(30)};
        joint.cut.stages = count + (uint32_t)test_random_below(5 - count);
        joint.cut.chunks = 1 + (uint32_t)test_random_below(10);
        EXPECT_STATUS(threads_world_once(&how, continue_on_rank, &joint), WEIR_OK);
        for (uint32_t r = 0; r < count && !test_has_failed(); r++)
            expect_same_texts(&joint.texts[r], in_order, TEXTS, &wanted);
    }
done:
    weir_model_destroy(model);
}

static void test_seeds_and_numbers_make_other_texts(void) {
    struct weir_model *model = make_model(LAYERS, 0);
    struct cut cut = {1, 2, TEXTS, WEIR_F64, true};
    struct generator_run run = {.sampler = warm, .tokens = 10};
    struct texts texts, other;
    struct generator g;
    uint32_t same[TEXTS] = {0}, equal = 0;
    if (!make_generator(&g, model, &cut, 5)) goto done;
    make_texts(&texts, same, TEXTS);
    for (uint32_t i = 0; i < TEXTS; i++) texts.list[i].identity.number = i;
    continue_all(&g, &run, &texts, TEXTS);
    make_texts(&other, same, 1);
    run.sampler.seed = 2;
    continue_all(&g, &run, &other, 1);
    size_t bytes = 11 * sizeof(uint32_t);
    for (uint32_t i = 1; i < TEXTS; i++)
        equal += memcmp(texts.tokens[0], texts.tokens[i], bytes) == 0;
    equal += memcmp(texts.tokens[0], other.tokens[0], bytes) == 0;
    EXPECT_EQ_UINT(equal, 0);
    generator_clean_up(&g);
done:
    weir_model_destroy(model);
}

/* ---- ends ---- */

static void test_texts_end_where_they_should(void) {
    struct weir_model *model = make_model(1, 0);
    struct cut cut = {1, 2, TEXTS, WEIR_F32, false};
    struct generator_run run = {.sampler = warm, .tokens = 5};
    struct texts texts;
    struct generator g;
    if (!make_generator(&g, model, &cut, 25)) goto done;
    make_texts(&texts, in_order, TEXTS); /* prompts of 1 to 9: 9 + 4 fill a context of 12 */
    continue_all(&g, &run, &texts, TEXTS);
    for (uint32_t i = 0; i < TEXTS; i++) {
        EXPECT_EQ_INT(texts.list[i].end, i < 4 ? GENERATOR_TOKENS : GENERATOR_CONTEXT);
        EXPECT_EQ_UINT(texts.list[i].count - texts.list[i].prompt, i < 4 ? 5 : 4);
    }
    make_texts(&texts, in_order, 1);
    texts.list[0].prompt = texts.list[0].count = CONTEXT;
    for (uint32_t k = 0; k < CONTEXT; k++) texts.tokens[0][k] = k;
    run.tokens = 1;
    continue_all(&g, &run, &texts, 1);
    EXPECT_EQ_INT(texts.list[0].end, GENERATOR_TOKENS);
    EXPECT_EQ_UINT(texts.list[0].count, CONTEXT + 1);
    generator_clean_up(&g);
done:
    weir_model_destroy(model);
}

/* ---- contexts that slide ---- */

enum { LONG = 3 * CONTEXT + 5 };

struct long_texts {
    struct generator *generator;
    uint32_t done; /**< texts before those that are being continued */
    struct generator_text list[3];
    uint32_t tokens[3][LONG];
    double logits[3][LONG][VOCAB]; /**< that the token at an index was drawn from */
};

static bool record_long(void *context, uint32_t number, uint32_t token) {
    struct long_texts *texts = context;
    uint32_t i = texts->done + number;
    (void)token;
    copy_logits(texts->generator, &texts->list[i], number,
                texts->logits[i][texts->list[i].count - 1]);
    return false;
}

/* After prompts of 1, 3 and 5 tokens. */
static void write_long(const struct weir_model *model, const struct cut *cut,
                       struct long_texts *texts) {
    struct generator g;
    struct generator_times times = {0};
    struct generator_run run = {.sampler = warm,
                                .tokens = LONG - 5,
                                .slides = true,
                                .visit = record_long,
                                .context = texts};
    if (!make_generator(&g, model, cut, 9)) return;
    texts->generator = &g;
    for (uint32_t i = 0; i < 3; i++) {
        uint32_t *tokens = texts->tokens[i], prompt = 1 + 2 * i;
        texts->list[i] = (struct generator_text){
            .tokens = tokens, .prompt = prompt, .count = prompt, .identity = {i, 0}};
        for (uint32_t k = 0; k < prompt; k++) tokens[k] = (i * 11 + k * 7 + 3) % VOCAB;
    }
    for (texts->done = 0; texts->done < 3; texts->done += cut->texts) {
        struct generator_text *list = texts->list + texts->done;
        EXPECT_STATUS(generator_continue(&g, &run, list, cut->texts, &times, NULL), WEIR_OK);
    }
    generator_clean_up(&g);
}

/* What a net on whole rows says of the token at index `at`, after those from `first` on. */
static void infer_window(struct weir_net *net, const uint32_t *tokens, uint32_t first, uint32_t at,
                         double logits[VOCAB]) {
    int64_t input[CONTEXT] = {0};
    static double output[CONTEXT][VOCAB];
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = 1, batch.input = input, batch.output = output;
    struct weir_step_result result;
    for (uint32_t i = first; i < at; i++) input[i - first] = tokens[i];
    EXPECT_STATUS(weir_net_infer(net, &batch, &result), WEIR_OK);
    memcpy(logits, output[at - first - 1], sizeof output[0]);
}

static void test_a_context_that_slides_is_the_whole_models_window(void) {
    static struct long_texts one, together;
    struct weir_model *model = make_model(LAYERS, 0);
    const struct cut alone = {1, 1, 1, WEIR_F64, true}, beside = {3, 2, 3, WEIR_F64, true};
    struct weir_net_options options = trial_options(1, 1, 1);
    options.dtype = WEIR_F64;
    options.reference = options.pipe.infer_only = true;
    write_long(model, &alone, &one);
    write_long(model, &beside, &together);
    struct weir_net *net = trial_net(model, &options);
    if (net != NULL) fill_parameters(net);
    for (uint32_t i = 0; net != NULL && i < 3 && !test_has_failed(); i++) {
        uint32_t first = 0, prompt = 1 + 2 * i, count = one.list[i].count;
        EXPECT_EQ_UINT(count, prompt + LONG - 5);
        EXPECT_EQ_UINT(together.list[i].count, count);
        EXPECT_EQ_BYTES(one.tokens[i], together.tokens[i], count * sizeof one.tokens[0][0]);
        for (uint32_t at = prompt; at < count && !test_has_failed(); at++) {
            double wanted[VOCAB];
            if (at - first > CONTEXT) first = at - CONTEXT / 2;
            infer_window(net, one.tokens[i], first, at, wanted);
            EXPECT_EQ_BYTES(one.logits[i][at], wanted, sizeof wanted);
            EXPECT_EQ_BYTES(together.logits[i][at], wanted, sizeof wanted);
        }
    }
    weir_net_destroy(net);
    weir_model_destroy(model);
}

static _Atomic int asked;
static bool stop_at_third(void) {
    return ++asked > 3;
}

static void test_a_stop_ends_all_texts_between_steps(void) {
    struct weir_model *model = make_model(1, 0);
    struct cut cut = {1, 1, 2, WEIR_F32, false};
    struct generator_run run = {.sampler = warm, .tokens = 9, .stop = stop_at_third};
    struct generator_times times = {0};
    struct texts texts;
    struct generator g;
    asked = 0;
    if (!make_generator(&g, model, &cut, 4)) goto done;
    make_texts(&texts, in_order, 2);
    EXPECT_STATUS(generator_continue(&g, &run, texts.list, 2, &times, NULL), WEIR_OK);
    for (uint32_t i = 0; i < 2; i++) {
        EXPECT_EQ_INT(texts.list[i].end, GENERATOR_INTERRUPTED);
        EXPECT_EQ_UINT(texts.list[i].count - texts.list[i].prompt, 3);
    }
    EXPECT_EQ_UINT(times.prompt_tokens, 4);
    EXPECT_EQ_UINT(times.tokens, 4);
    EXPECT(times.seconds > 0 && times.prompt_seconds > 0);
    generator_clean_up(&g);
done:
    weir_model_destroy(model);
}

/* ---- what is refused, and what fails ---- */

static void refuse(struct weir_model *model, const char *message) {
    struct generator_options options = {model, trial_options(1, 1, 1), 1, 1, false};
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct generator g;
    EXPECT(generator_init(&g, &options, &faults) != WEIR_OK);
    EXPECT_FAULTS(&faults, message);
    generator_clean_up(&g);
    weir_faults_clean_up(&faults);
    weir_model_destroy(model);
}

static void test_models_that_continue_nothing_are_refused(void) {
    struct weir_tensor tokens = {.dtype = WEIR_I64, .rank = 1, .shape = {4}};
    struct weir_tensor numbers = {.dtype = WEIR_F32, .rank = 1, .shape = {4}};
    struct weir_tensor label = {.dtype = WEIR_I64};
    struct weir_model *model = trial_model(tokens, label, "cross_entropy");
    trial_add(model, "embedding",
              WEIR_ATTRS(WEIR_ATTR_INT("num_embeddings", 5), WEIR_ATTR_INT("embedding_dim", 4)));
    trial_add(model, "flatten", WEIR_NO_ATTRS);
    refuse(model, "but gives f32 [16]");
    model = trial_model(numbers, numbers, "mse");
    trial_add(model, "relu", WEIR_NO_ATTRS);
    refuse(model, "it would have to take tokens, i64 [T], and give numbers [T, vocabulary]");
}

static void test_broken_weights_are_named(void) {
    struct weir_model *model = make_model(1, 0);
    struct cut cut = {1, 1, 1, WEIR_F32, false};
    struct generator_run run = {.sampler = greedy, .tokens = 2};
    struct generator_times times = {0};
    struct weir_error error = {0};
    struct weir_parameter parameter;
    struct texts texts;
    struct generator g;
    if (!make_generator(&g, model, &cut, 1)) goto done;
    EXPECT_STATUS(weir_net_parameter(g.net, 0, &parameter), WEIR_OK);
    for (uint64_t i = 0; i < parameter.count; i++) ((float *)parameter.data)[i] = NAN;
    make_texts(&texts, in_order, 1);
    EXPECT_STATUS(generator_continue(&g, &run, texts.list, 1, &times, &error), WEIR_ERR_NONFINITE);
    EXPECT_CONTAINS(error.message, "the model's output is not finite: its weights are damaged");
    EXPECT_EQ_INT(texts.list[0].end, GENERATOR_GOING);
    generator_clean_up(&g);
done:
    weir_model_destroy(model);
}

/* ---- what is known already ---- */

/* Bits: the same rows by the same kernels, whichever step they are in. */
static void test_a_text_that_begins_as_one_before_goes_on_from_there(void) {
    struct weir_model *model = make_model(LAYERS, 0);
    const struct cut cuts[] = {{1, 2, 1, WEIR_F64, true}, {3, 1, 1, WEIR_F32, false}};
    const struct generator_run run = {.sampler = warm, .tokens = 3};
    for (size_t i = 0; i < WEIR__COUNT_OF(cuts) && !test_has_failed(); i++) {
        struct generator_times known_times = {0}, anew_times = {0};
        struct texts known, anew;
        struct generator g;
        uint32_t four = 4;
        if (!make_generator(&g, model, &cuts[i], 9)) break;
        make_texts(&known, &(uint32_t){2}, 1);
        make_texts(&anew, &four, 1); /* another text between, whose places are written again */
        continue_all(&g, &run, &anew, 1);
        continue_all(&g, &run, &known, 1);
        struct generator_text *text = &known.list[0], *other = &anew.list[0];
        EXPECT_EQ_UINT(text->count, 8);
        EXPECT_EQ_UINT(text->read, 7);
        known.tokens[0][8] = 1; /* said by somebody else */
        text->count = text->prompt = 9;
        text->end = GENERATOR_GOING;
        memcpy(anew.tokens[0], known.tokens[0], 9 * sizeof(uint32_t));
        *other = *text;
        other->tokens = anew.tokens[0];
        other->read = 0;
        EXPECT_STATUS(generator_continue(&g, &run, text, 1, &known_times, NULL), WEIR_OK);
        EXPECT_STATUS(generator_continue(&g, &run, other, 1, &anew_times, NULL), WEIR_OK);
        EXPECT_EQ_UINT(known_times.prompt_tokens, 2);
        EXPECT_EQ_UINT(anew_times.prompt_tokens, 9);
        EXPECT_EQ_UINT(text->count, 12);
        EXPECT_EQ_BYTES(known.tokens[0], anew.tokens[0], 12 * sizeof(uint32_t));
        generator_clean_up(&g);
    }
    weir_model_destroy(model);
}

enum { ROWS = 8, UNTOUCHED = 0x55, STEP = 5 };

/* One row per token of a sequence, from place `from` on; `step` makes another text. */
static void infer_from(struct generator *g, int64_t from, int64_t rows, int64_t step, int64_t first,
                       void *output) {
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    struct weir_step_result result;
    for (int64_t row = 0; row < rows; row++) {
        g->input[row] = ((from + row) * step + 2) % VOCAB;
        g->sequence[row] = 0;
        g->place[row] = (uint32_t)(from + row);
    }
    batch.rows = rows;
    batch.input = g->input;
    batch.sequence = g->sequence;
    batch.place = g->place;
    batch.output = output;
    batch.output_first = first;
    EXPECT_STATUS(weir_net_infer(g->net, &batch, &result), WEIR_OK);
}

static void infer_tokens(struct generator *g, int64_t rows, int64_t first, void *output) {
    infer_from(g, 0, rows, STEP, first, output);
}

/* The last token by what is kept of those before it, whose outputs nobody wanted, over another
 * text's; and by that text's alone it is another. */
static void check_kept(struct generator *g) {
    static char wanted[VOCAB * 8], other[VOCAB * 8], got[VOCAB * 8], before[ROWS][VOCAB * 8];
    size_t bytes = VOCAB * weir_dtype_bytes(g->dtype);
    infer_from(g, 0, ROWS - 1, STEP, 0, before);
    infer_from(g, ROWS - 1, 1, STEP, 0, wanted);
    infer_from(g, 0, ROWS - 1, STEP + 2, 0, before);
    infer_from(g, ROWS - 1, 1, STEP, 0, other);
    EXPECT(memcmp(other, wanted, bytes) != 0);
    infer_from(g, 0, ROWS - 1, STEP, 0, NULL);
    infer_from(g, ROWS - 1, 1, STEP, 0, got);
    EXPECT_EQ_BYTES(got, wanted, bytes);
}

static void compare_rows(struct generator *g) {
    static char whole[ROWS][VOCAB * 8], some[ROWS][VOCAB * 8];
    size_t bytes = VOCAB * weir_dtype_bytes(g->dtype);
    infer_tokens(g, ROWS, 0, whole);
    for (int64_t first = 0; first <= ROWS && !test_has_failed(); first++) {
        memset(some, UNTOUCHED, sizeof some);
        infer_tokens(g, ROWS, first, some);
        for (int64_t row = first; row < ROWS; row++)
            EXPECT_EQ_BYTES((char *)some + (size_t)row * bytes, (char *)whole + (size_t)row * bytes,
                            bytes);
        for (size_t i = 0; i < (size_t)first * bytes; i++)
            EXPECT_EQ_INT(((char *)some)[i], UNTOUCHED);
    }
}

static void test_logits_of_other_rows_than_the_wanted_are_not_computed(void) {
    static const struct cut cuts[] = {{1, 2, 1, WEIR_F32, false},
                                      {3, 2, 1, WEIR_F32, false},
                                      {2, 1, 1, WEIR_F64, true},
                                      {1, 1, 1, WEIR_BF16, false}};
    for (uint32_t residual_block = 0; residual_block <= 1; residual_block++) {
        struct weir_model *model = make_model(LAYERS, residual_block);
        for (size_t i = 0; i < WEIR__COUNT_OF(cuts) && !test_has_failed(); i++) {
            struct generator g;
            if (!make_generator(&g, model, &cuts[i], ROWS)) break;
            compare_rows(&g);
            check_kept(&g);
            generator_clean_up(&g);
        }
        weir_model_destroy(model);
    }
}

static void test_a_row_beyond_the_batch_is_refused_as_the_first_wanted(void) {
    struct weir_model *model = make_model(1, 0);
    struct cut cut = {1, 1, 1, WEIR_F32, false};
    struct weir_step_result result;
    struct generator g;
    for (int64_t first = -1; first <= 2; first += 3) {
        if (!make_generator(&g, model, &cut, 1)) break;
        struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
        batch.rows = 1, batch.input = g.input, batch.output = g.output;
        batch.sequence = g.sequence, batch.place = g.place;
        batch.output_first = first;
        EXPECT_STATUS(weir_net_infer(g.net, &batch, &result), WEIR_ERR_ARGUMENT);
        EXPECT_CONTAINS(result.error.message, "with 1 rows it is at least 0 and at most that");
        generator_clean_up(&g);
    }
    weir_model_destroy(model);
}

static bool end_at_second(void *context, uint32_t text, uint32_t token) {
    uint32_t *seen = context;
    (void)token;
    return ++seen[text] == 2;
}

static void test_a_visit_ends_its_text_alone(void) {
    struct weir_model *model = make_model(1, 0);
    struct cut cut = {1, 1, 2, WEIR_F32, false};
    uint32_t seen[2] = {0, 10};
    struct generator_run run = {
        .sampler = warm, .tokens = 4, .visit = end_at_second, .context = seen};
    struct texts texts;
    struct generator g;
    if (!make_generator(&g, model, &cut, 4)) goto done;
    make_texts(&texts, in_order, 2);
    continue_all(&g, &run, &texts, 2);
    EXPECT_EQ_INT(texts.list[0].end, GENERATOR_VISIT);
    EXPECT_EQ_UINT(texts.list[0].count, 1 + 2);
    EXPECT_EQ_INT(texts.list[1].end, GENERATOR_TOKENS);
    EXPECT_EQ_UINT(texts.list[1].count, 3 + 4);
    generator_clean_up(&g);
done:
    weir_model_destroy(model);
}

WEIR_TEST_SUITE(generator, TEST(every_token_is_the_whole_models_best),
                TEST(a_text_does_not_depend_on_how_the_work_is_cut),
                TEST(all_ranks_continue_the_texts_of_one_process),
                TEST(seeds_and_numbers_make_other_texts), TEST(texts_end_where_they_should),
                TEST(a_context_that_slides_is_the_whole_models_window),
                TEST(a_text_that_begins_as_one_before_goes_on_from_there),
                TEST(logits_of_other_rows_than_the_wanted_are_not_computed),
                TEST(a_row_beyond_the_batch_is_refused_as_the_first_wanted),
                TEST(a_visit_ends_its_text_alone), TEST(a_stop_ends_all_texts_between_steps),
                TEST(models_that_continue_nothing_are_refused), TEST(broken_weights_are_named))
