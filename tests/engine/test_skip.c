/* SPDX-License-Identifier: MIT */
/*
 * Goal: the verifier accepts what torchgpipe's accepts and lists every fault of what it refuses;
 * the layout gives upstream's copy policy. Method: small declaration lists written as rows,
 * upstream's own cases among them, and random lists that are judged by a second, naive verifier.
 */
#include "harness.h"

#include "skip/skip.h"

#include <stdio.h>
#include <string.h>

#define LIST(...) ((const struct weir__skip_decl[]){__VA_ARGS__})
#define COUNT(...) (sizeof LIST(__VA_ARGS__) / sizeof(struct weir__skip_decl))
#define STASH(owner_, name_)                                                                       \
    {                                                                                              \
        (owner_), {                                                                                \
            .verb = WEIR_SKIP_STASH, .name = (name_)                                               \
        }                                                                                          \
    }
#define READ(owner_, name_)                                                                        \
    {                                                                                              \
        (owner_), {                                                                                \
            .verb = WEIR_SKIP_READ, .name = (name_)                                                \
        }                                                                                          \
    }
#define POP(owner_, name_)                                                                         \
    {                                                                                              \
        (owner_), {                                                                                \
            .verb = WEIR_SKIP_POP, .name = (name_)                                                 \
        }                                                                                          \
    }
#define STASH_IN(owner_, space_, name_)                                                            \
    {                                                                                              \
        (owner_), {                                                                                \
            .verb = WEIR_SKIP_STASH, .name = (name_), .name_space = (space_)                       \
        }                                                                                          \
    }
#define POP_IN(owner_, space_, name_)                                                              \
    {                                                                                              \
        (owner_), {                                                                                \
            .verb = WEIR_SKIP_POP, .name = (name_), .name_space = (space_)                         \
        }                                                                                          \
    }

/* ---- verify ---- */

static const char *layer_name(void *context, uint32_t owner) {
    char *text = context;
    snprintf(text, 32, "layer %u", (unsigned)owner);
    return text;
}

/* The faults as one text, one per line. */
static int verify(const struct weir__skip_decl *declarations, size_t count, char *text,
                  size_t capacity) {
    struct weir_faults faults = {.allocator = test_allocator()};
    char name[32];
    int status = weir__skip_verify(declarations, (uint32_t)count, layer_name, name, &faults);
    size_t used = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < faults.kept && used < capacity; i++) {
        used += (size_t)snprintf(text + used, capacity - used, "%s\n", faults.lines[i]);
    }
    EXPECT_EQ_INT(faults.count == 0, status == WEIR_OK);
    weir_faults_clean_up(&faults);
    return status;
}

#define VERIFY(text, ...) verify(LIST(__VA_ARGS__), COUNT(__VA_ARGS__), text, sizeof(text))

// SK-1
static void test_stash_with_its_pop_is_accepted(void) {
    char text[1024];
    CHECK_OK(VERIFY(text, STASH(0, "foo"), POP(1, "foo")));
    CHECK_OK(VERIFY(text, STASH(0, "foo"), STASH(1, "bar"), POP(2, "foo"), POP(3, "bar")));
    CHECK_OK(VERIFY(text, STASH(0, "foo"), STASH(1, "bar"), POP(2, "bar"), POP(3, "foo")));
    CHECK_OK(verify(NULL, 0, text, sizeof text));
    CHECK_EQ_STR(text, "");
}

// SK-2
static void test_each_mismatch_is_refused_with_its_reason(void) {
    char text[1024];
    CHECK_STATUS(VERIFY(text, STASH(0, "foo")), WEIR_ERR_SKIP);
    CHECK_CONTAINS(text, "skip 'foo' is stashed by layer 0 but never popped");
    CHECK_STATUS(VERIFY(text, POP(1, "foo")), WEIR_ERR_SKIP);
    CHECK_CONTAINS(text, "skip 'foo' is popped by layer 1 but never stashed");
    CHECK_STATUS(VERIFY(text, STASH(0, "foo"), STASH(1, "foo"), POP(2, "foo")), WEIR_ERR_SKIP);
    CHECK_CONTAINS(text, "skip 'foo' is stashed by layer 1 and already stashed by layer 0");
    CHECK_STATUS(VERIFY(text, STASH(0, "foo"), POP(1, "foo"), POP(2, "foo")), WEIR_ERR_SKIP);
    CHECK_CONTAINS(text, "skip 'foo' is popped by layer 2 and already popped by layer 1");
    CHECK_STATUS(VERIFY(text, STASH(0, "foo"), POP(0, "foo")), WEIR_ERR_SKIP);
    CHECK_CONTAINS(text, "skip 'foo' is popped by layer 0 and stashed by layer 0");
}

// SK-2
static void test_all_faults_are_reported_together(void) {
    char text[2048];
    CHECK_STATUS(VERIFY(text, STASH(0, "alone"), STASH(0, "twice"), POP(1, "never"),
                        STASH(1, "twice"), STASH(2, "self"), POP(2, "self"), POP(3, "twice"),
                        POP(4, "twice")),
                 WEIR_ERR_SKIP);
    CHECK_CONTAINS(text, "'alone' is stashed by layer 0 but never popped");
    CHECK_CONTAINS(text, "'never' is popped by layer 1 but never stashed");
    CHECK_CONTAINS(text, "'self' is popped by layer 2 and stashed by layer 2");
    CHECK_CONTAINS(text, "'twice' is stashed by layer 1 and already stashed by layer 0");
    CHECK_CONTAINS(text, "'twice' is popped by layer 4 and already popped by layer 3");
}

// SK-3
static void test_popping_one_and_stashing_another_is_fine(void) {
    char text[1024];
    CHECK_OK(VERIFY(text, STASH(0, "foo"), POP(1, "foo"), STASH(1, "bar"), POP(2, "bar")));
}

// SK-4
static void test_namespaces_isolate_equal_names(void) {
    char text[1024];
    char copy[] = "a";
    CHECK_OK(VERIFY(text, STASH_IN(0, "a", "foo"), STASH_IN(1, "b", "foo"), POP_IN(2, copy, "foo"),
                    POP_IN(3, "b", "foo")));
    CHECK_STATUS(VERIFY(text, STASH_IN(0, "a", "foo"), STASH_IN(1, copy, "foo"),
                        POP_IN(2, "a", "foo"), POP_IN(3, "a", "foo")),
                 WEIR_ERR_SKIP);
    CHECK_CONTAINS(text, "skip 'foo' of namespace 'a' is stashed by layer 1 and already stashed");
    CHECK_CONTAINS(text, "skip 'foo' of namespace 'a' is popped by layer 3 and already popped");
    CHECK_STATUS(VERIFY(text, STASH_IN(0, "a", "foo"), POP_IN(1, "b", "foo")), WEIR_ERR_SKIP);
    CHECK_CONTAINS(text, "namespace 'a' is stashed by layer 0 but never popped");
    CHECK_CONTAINS(text, "namespace 'b' is popped by layer 1 but never stashed");
}

// SK-4
static void test_a_layer_may_isolate_some_names_only(void) {
    char text[1024];
    CHECK_OK(VERIFY(text, STASH(0, "foo"), STASH_IN(0, "n", "bar"), POP_IN(1, "n", "bar"),
                    STASH_IN(1, "n", "foo"), POP_IN(2, "", "foo"), POP_IN(2, "n", "foo")));
}

// SK-7
static void test_a_skip_may_be_read_by_several(void) {
    char text[1024];
    CHECK_OK(VERIFY(text, STASH(0, "v"), READ(1, "v"), READ(2, "v"), POP(3, "v")));
    CHECK_OK(VERIFY(text, STASH(0, "v"), READ(1, "v"), READ(2, "v")));
}

// SK-7
static void test_read_after_pop_and_unread_stash_are_refused(void) {
    char text[1024];
    CHECK_STATUS(VERIFY(text, STASH(0, "v"), POP(1, "v"), READ(2, "v")), WEIR_ERR_SKIP);
    CHECK_CONTAINS(text, "skip 'v' is read by layer 2 after it is popped by layer 1");
    CHECK_STATUS(VERIFY(text, STASH(0, "v"), READ(0, "v")), WEIR_ERR_SKIP);
    CHECK_CONTAINS(text, "skip 'v' is read by layer 0 and stashed by layer 0");
    CHECK_STATUS(VERIFY(text, READ(1, "v")), WEIR_ERR_SKIP);
    CHECK_CONTAINS(text, "skip 'v' is read by layer 1 but never stashed");
    CHECK_STATUS(VERIFY(text, STASH(3, "v")), WEIR_ERR_SKIP);
}

// SK-8
static void test_use_before_the_stash_is_refused(void) {
    char text[1024];
    CHECK_STATUS(VERIFY(text, POP(0, "foo"), STASH(1, "foo")), WEIR_ERR_SKIP);
    CHECK_CONTAINS(text, "skip 'foo' is popped by layer 0 before it is stashed by layer 1");
    CHECK_STATUS(VERIFY(text, READ(0, "foo"), STASH(1, "foo"), POP(2, "foo")), WEIR_ERR_SKIP);
    CHECK_CONTAINS(text, "skip 'foo' is read by layer 0 before it is stashed by layer 1");
}

static void test_owners_without_names_are_numbered(void) {
    struct weir_faults faults = {.allocator = test_allocator()};
    struct weir__skip_decl lone = STASH(7, "foo");
    int status = weir__skip_verify(&lone, 1, NULL, NULL, &faults);
    EXPECT_STATUS(status, WEIR_ERR_SKIP);
    if (EXPECT_EQ_UINT(faults.kept, 1)) {
        EXPECT_CONTAINS(faults.lines[0], "stashed by owner 7 but never popped");
    }
    weir_faults_clean_up(&faults);
    EXPECT_STATUS(weir__skip_verify(&lone, 1, NULL, NULL, NULL), WEIR_ERR_SKIP);
}

/* By definition: one stash, before all uses and by another owner than any; at least one use; at
 * most one pop, and it last. */
static bool naive_verdict(const struct weir__skip_decl *list, uint32_t count) {
    for (uint32_t a = 0; a < count; a++) {
        uint32_t stashes = 0, pops = 0, uses = 0;
        bool good = true;
        for (uint32_t b = 0; b < count; b++) {
            if (strcmp(list[a].use.name, list[b].use.name) != 0) continue;
            stashes += list[b].use.verb == WEIR_SKIP_STASH;
            pops += list[b].use.verb == WEIR_SKIP_POP;
            uses += list[b].use.verb != WEIR_SKIP_STASH;
            for (uint32_t c = 0; c < count; c++) {
                if (strcmp(list[a].use.name, list[c].use.name) != 0 || c == b) continue;
                bool stash = list[b].use.verb == WEIR_SKIP_STASH;
                good = good && !(stash && (c < b || list[b].owner == list[c].owner));
                good = good && !(list[b].use.verb == WEIR_SKIP_POP && c > b);
            }
        }
        if (!good || stashes != 1 || pops > 1 || uses == 0) return false;
    }
    return true;
}

static void test_verdicts_agree_with_the_definition(void) {
    static const char *const names[] = {"a", "b"};
    uint32_t accepted = 0;
    for (int run = 0; run < 20000; run++) {
        struct weir__skip_decl list[8] = {0};
        uint32_t count = (uint32_t)test_random_below(7), owner = 0;
        for (uint32_t i = 0; i < count; i++) {
            owner += (uint32_t)test_random_below(3) > 0;
            list[i].owner = owner;
            list[i].use.verb = (enum weir_skip_verb)test_random_below(3);
            list[i].use.name = names[test_random_below(2)];
        }
        char text[4096];
        bool verdict = verify(list, count, text, sizeof text) == WEIR_OK;
        accepted += verdict;
        CHECK_EQ_INT(verdict, naive_verdict(list, count));
    }
    CHECK(accepted > 500 && accepted < 15000);
}

/* ---- layout ---- */

static bool arrives(const struct weir_skip_route *route, uint32_t stage) {
    uint32_t r = 0;
    while (r < route->reader_count && route->readers[r] != stage) r++;
    return r < route->reader_count;
}

/* upstream's copy policy, "[] [0:foo] [0:foo 1:bar]": per stage, source and name of what arrives */
static void describe_policy(const struct weir__skip_layout *layout, uint32_t stages, char *text,
                            size_t capacity) {
    size_t used = 0;
    for (uint32_t s = 0; s < stages; s++) {
        const char *gap = "";
        used += (size_t)snprintf(text + used, capacity - used, "%s[", s > 0 ? " " : "");
        for (uint32_t i = 0; i < layout->route_count; i++) {
            const struct weir_skip_route *route = &layout->routes[i];
            if (!arrives(route, s)) continue;
            used += (size_t)snprintf(text + used, capacity - used, "%s%u:%s%s%s", gap,
                                     (unsigned)route->source, route->name_space,
                                     route->name_space[0] != 0 ? "." : "", route->name);
            gap = " ";
        }
        used += (size_t)snprintf(text + used, capacity - used, "]");
    }
}

/* The declarations' owners are layers; routes are of the stages that these lie in. */
static struct weir__skip_layout make_layout(struct weir__pool *pool,
                                            const struct weir__skip_decl *list, size_t count,
                                            const uint32_t *stage_of) {
    struct weir__skip_layout layout = {0};
    weir__pool_init(pool, test_allocator());
    struct weir__skip_decl *own = weir__pool_copy(pool, list, count, sizeof *own);
    for (size_t i = 0; i < count; i++) own[i].owner = stage_of[own[i].owner];
    EXPECT_STATUS(weir__skip_layout_init(&layout, pool, own, (uint32_t)count), WEIR_OK);
    return layout;
}

#define LAYOUT(pool, stage_of, ...)                                                                \
    make_layout(pool, LIST(__VA_ARGS__), COUNT(__VA_ARGS__), stage_of)

static void expect_policy(const char *policy, const uint32_t *stage_of, uint32_t stages,
                          const struct weir__skip_decl *list, size_t count) {
    char text[256];
    struct weir__pool pool;
    struct weir__skip_layout layout = make_layout(&pool, list, count, stage_of);
    describe_policy(&layout, stages, text, sizeof text);
    EXPECT_EQ_STR(text, policy);
    weir__pool_clean_up(&pool);
}

#define EXPECT_POLICY(policy, stage_of, stages, ...)                                               \
    expect_policy(policy, stage_of, stages, LIST(__VA_ARGS__), COUNT(__VA_ARGS__))

// LA-1
static void test_no_skips_give_an_empty_policy(void) {
    expect_policy("[] [] []", NULL, 3, NULL, 0);
}

// LA-1
static void test_skip_within_a_stage_has_no_route(void) {
    struct weir__pool pool;
    struct weir__skip_layout layout =
        LAYOUT(&pool, ((uint32_t[]){0, 0, 1}), STASH(0, "foo"), READ(1, "foo"), POP(1, "foo"));
    EXPECT_EQ_UINT(layout.route_count, 0);
    for (uint32_t d = 0; d < 3; d++) EXPECT_EQ_UINT(layout.route_of[d], WEIR__NO_ROUTE);
    weir__pool_clean_up(&pool);
}

// LA-2
static void test_skips_go_past_the_stages_between(void) {
    static const uint32_t identity[] = {0, 1, 2};
    EXPECT_POLICY("[] [0:foo]", identity, 2, STASH(0, "foo"), POP(1, "foo"));
    EXPECT_POLICY("[] [] [0:foo]", identity, 3, STASH(0, "foo"), POP(2, "foo"));
}

// LA-3
static void test_sources_are_sorted_by_stage(void) {
    static const uint32_t identity[] = {0, 1, 2};
    EXPECT_POLICY("[] [] [0:foo 1:bar]", identity, 3, STASH(0, "foo"), STASH(1, "bar"),
                  POP(2, "bar"), POP(2, "foo"));
    /* upstream's reverse case: names sort the other way, stages decide */
    EXPECT_POLICY("[] [] [0:zoo 1:ape]", identity, 3, STASH(0, "zoo"), STASH(1, "ape"),
                  POP(2, "zoo"), POP(2, "ape"));
}

// LA-3
static void test_one_name_in_two_namespaces_is_two_routes(void) {
    EXPECT_POLICY("[] [0:b.foo 0:a.foo]", ((uint32_t[]){0, 0, 1}), 2, STASH_IN(0, "b", "foo"),
                  STASH_IN(0, "a", "foo"), POP_IN(2, "a", "foo"), POP_IN(2, "b", "foo"));
}

static void test_readers_are_stages_each_once(void) {
    struct weir__pool pool;
    struct weir__skip_layout layout =
        LAYOUT(&pool, ((uint32_t[]){0, 0, 1, 1, 2, 3}), STASH(0, "v"), READ(1, "v"), READ(2, "v"),
               READ(3, "v"), READ(5, "v"), POP(5, "v"));
    if (EXPECT_EQ_UINT(layout.route_count, 1)) {
        const struct weir_skip_route *route = &layout.routes[0];
        EXPECT_EQ_UINT(route->source, 0);
        EXPECT_EQ_UINT(route->reader_count, 2);
        EXPECT_EQ_UINT(route->readers[0], 1);
        EXPECT_EQ_UINT(route->readers[1], 3);
        EXPECT(weir__skip_route_is_valid(route, 4) && !weir__skip_route_is_valid(route, 3));
    }
    weir__pool_clean_up(&pool);
}

static bool requires_copy(const struct weir__skip_layout *layout, const char *name_space,
                          const char *name) {
    uint32_t route = 0;
    return weir__skip_layout_find(layout, name_space, name, NULL, &route) == WEIR_OK;
}

// LA-4
static void test_requires_copy_answers_per_namespace_and_name(void) {
    static const uint32_t stage_of[] = {0, 0, 1};
    struct weir__pool pool;
    struct weir__skip_layout layout =
        LAYOUT(&pool, stage_of, STASH(0, "far"), STASH_IN(0, "n", "far"), STASH_IN(0, "n", "only"),
               STASH(0, "near"), POP(1, "near"), POP_IN(1, "n", "far"), POP(2, "far"),
               POP_IN(2, "n", "only"));
    EXPECT(requires_copy(&layout, "", "far"));
    EXPECT(requires_copy(&layout, "n", "only"));
    EXPECT(!requires_copy(&layout, "n", "far"));
    EXPECT(!requires_copy(&layout, "", "near"));
    EXPECT(!requires_copy(&layout, "", "only"));
    EXPECT(!requires_copy(&layout, "", "unknown"));
    weir__pool_clean_up(&pool);
}

// LA-5
static void test_what_is_no_portal_has_no_route_to_copy_over(void) {
    static const uint32_t stage_of[] = {0, 0, 1};
    struct weir__pool pool;
    struct weir__skip_layout layout = LAYOUT(&pool, stage_of, STASH(0, "near"), STASH(0, "far"),
                                             POP(1, "near"), READ(2, "far"), POP(2, "far"));
    static const uint32_t route_of[] = {WEIR__NO_ROUTE, 0, WEIR__NO_ROUTE, 0, 0};
    for (uint32_t d = 0; d < 5; d++) EXPECT_EQ_UINT(layout.route_of[d], route_of[d]);
    struct weir_error error = {0};
    uint32_t route = WEIR__NO_ROUTE;
    EXPECT_STATUS(weir__skip_layout_find(&layout, "", "far", &error, &route), WEIR_OK);
    EXPECT_EQ_UINT(route, 0);
    EXPECT_STATUS(weir__skip_layout_find(&layout, "", "near", &error, &route), WEIR_ERR_NOT_FOUND);
    CHECK_CONTAINS(error.message, "skip 'near'");
    weir__pool_clean_up(&pool);
}

static void test_empty_skip_has_no_route(void) {
    struct weir__skip_decl list[] = {STASH(0, "void"), STASH(0, "full"), POP(1, "void"),
                                     POP(1, "full")};
    list[0].use.empty = true;
    expect_policy("[] [0:full]", (uint32_t[]){0, 1}, 2, list, 4);
}

/* Many skips between random stages, against a search over all pairs. */
static void test_large_layouts_hold_every_route(void) {
    enum { SKIPS = 300, STAGES = 9 };
    static struct weir__skip_decl list[2 * SKIPS];
    static char names[SKIPS][8];
    uint32_t source[SKIPS], target[SKIPS], of[2 * SKIPS], count = 0, crossing = 0;
    for (uint32_t i = 0; i < SKIPS; i++) {
        snprintf(names[i], sizeof names[i], "s%u", (unsigned)((i * 7919) % SKIPS));
        source[i] = (uint32_t)test_random_below(STAGES);
        target[i] = source[i] + (uint32_t)test_random_below(STAGES - source[i]);
        crossing += source[i] != target[i];
    }
    for (uint32_t k = 0; k < STAGES * 2 * SKIPS; k++) { /* by stage; stashes first */
        uint32_t stage = k / (2 * SKIPS), i = k % SKIPS;
        bool stash = k / SKIPS % 2 == 0;
        if (stage != (stash ? source : target)[i]) continue;
        of[count] = i;
        list[count].owner = stage;
        list[count].use.verb = stash ? WEIR_SKIP_STASH : WEIR_SKIP_POP;
        list[count++].use.name = names[i];
    }
    CHECK_EQ_UINT(count, 2 * SKIPS);
    struct weir__pool pool;
    weir__pool_init(&pool, test_allocator());
    struct weir__skip_layout layout;
    CHECK_OK(weir__skip_layout_init(&layout, &pool, list, count));
    EXPECT_EQ_UINT(layout.route_count, crossing);
    for (uint32_t d = 0; d < count; d++) {
        uint32_t r = layout.route_of[d], i = of[d];
        EXPECT_EQ_INT(r != WEIR__NO_ROUTE, source[i] != target[i]);
        if (r == WEIR__NO_ROUTE) continue;
        CHECK(r < layout.route_count);
        EXPECT_EQ_STR(layout.routes[r].name, names[i]);
        EXPECT_EQ_UINT(layout.routes[r].source, source[i]);
        EXPECT_EQ_UINT(layout.routes[r].reader_count, 1);
        EXPECT_EQ_UINT(layout.routes[r].readers[0], target[i]);
        EXPECT(r == 0 || layout.routes[r - 1].source <= source[i]);
    }
    weir__pool_clean_up(&pool);
}

static void test_lack_of_memory_is_reported(void) {
    static struct weir__skip_decl list[300]; /* more than a pool takes at once */
    static char names[150][8];
    uint64_t k = 0;
    for (uint32_t i = 0; i < 150; i++) {
        snprintf(names[i], sizeof names[i], "s%u", (unsigned)i);
        list[i] = (struct weir__skip_decl)STASH(0, names[i]);
        list[150 + i] = (struct weir__skip_decl)POP(1, names[i]);
    }
    for (bool fired = true; fired; k++) {
        struct weir__skip_layout layout;
        struct weir__pool pool;
        weir__pool_init(&pool, test_allocator());
        test_allocator_fail_at(k + 1, false);
        int status = weir__skip_layout_init(&layout, &pool, list, 300);
        fired = test_allocator_fired();
        test_allocator_fail_at(0, false);
        CHECK_STATUS(status, fired ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
        weir__pool_clean_up(&pool);
    }
    CHECK(k > 2);
    struct weir_faults faults = {.allocator = test_allocator()};
    test_allocator_fail_at(1, true);
    int status = weir__skip_verify(list, 300, NULL, NULL, &faults);
    test_allocator_fail_at(0, false);
    CHECK_STATUS(status, WEIR_ERR_OUT_OF_MEMORY);
    weir_faults_clean_up(&faults);
}

WEIR_TEST_SUITE(
    skip, TEST(stash_with_its_pop_is_accepted), TEST(each_mismatch_is_refused_with_its_reason),
    TEST(all_faults_are_reported_together), TEST(popping_one_and_stashing_another_is_fine),
    TEST(namespaces_isolate_equal_names), TEST(a_layer_may_isolate_some_names_only),
    TEST(a_skip_may_be_read_by_several), TEST(read_after_pop_and_unread_stash_are_refused),
    TEST(use_before_the_stash_is_refused), TEST(owners_without_names_are_numbered),
    TEST(verdicts_agree_with_the_definition), TEST(no_skips_give_an_empty_policy),
    TEST(skip_within_a_stage_has_no_route), TEST(skips_go_past_the_stages_between),
    TEST(sources_are_sorted_by_stage), TEST(one_name_in_two_namespaces_is_two_routes),
    TEST(readers_are_stages_each_once), TEST(requires_copy_answers_per_namespace_and_name),
    TEST(what_is_no_portal_has_no_route_to_copy_over), TEST(empty_skip_has_no_route),
    TEST(large_layouts_hold_every_route), TEST(lack_of_memory_is_reported))
