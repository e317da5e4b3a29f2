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
    { .owner = (owner_), .verb = WEIR_SKIP_STASH, .name = (name_) }
#define READ(owner_, name_)                                                                        \
    { .owner = (owner_), .verb = WEIR_SKIP_READ, .name = (name_) }
#define POP(owner_, name_)                                                                         \
    { .owner = (owner_), .verb = WEIR_SKIP_POP, .name = (name_) }
#define STASH_IN(owner_, space_, name_)                                                            \
    { .owner = (owner_), .verb = WEIR_SKIP_STASH, .name = (name_), .name_space = (space_) }
#define POP_IN(owner_, space_, name_)                                                              \
    { .owner = (owner_), .verb = WEIR_SKIP_POP, .name = (name_), .name_space = (space_) }

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
            if (strcmp(list[a].name, list[b].name) != 0) continue;
            stashes += list[b].verb == WEIR_SKIP_STASH;
            pops += list[b].verb == WEIR_SKIP_POP;
            uses += list[b].verb != WEIR_SKIP_STASH;
            for (uint32_t c = 0; c < count; c++) {
                if (strcmp(list[a].name, list[c].name) != 0 || c == b) continue;
                bool stash = list[b].verb == WEIR_SKIP_STASH;
                good = good && !(stash && (c < b || list[b].owner == list[c].owner));
                good = good && !(list[b].verb == WEIR_SKIP_POP && c > b);
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
            list[i].verb = (enum weir_skip_verb)test_random_below(3);
            list[i].name = names[test_random_below(2)];
        }
        char text[4096];
        bool verdict = verify(list, count, text, sizeof text) == WEIR_OK;
        accepted += verdict;
        CHECK_EQ_INT(verdict, naive_verdict(list, count));
    }
    CHECK(accepted > 500 && accepted < 15000);
}

/* ---- layout ---- */

/* "[] [0:foo] [0:foo 1:bar]": per stage, source and name of what arrives. */
static void describe_policy(const struct weir__skip_layout *layout, uint32_t stages, char *text,
                            size_t capacity) {
    size_t used = 0;
    for (uint32_t s = 0; s < stages; s++) {
        const uint32_t *routes = NULL;
        uint32_t count = weir__skip_layout_arriving(layout, s, &routes);
        used += (size_t)snprintf(text + used, capacity - used, "%s[", s > 0 ? " " : "");
        for (uint32_t i = 0; i < count; i++) {
            const struct weir__skip_route *route = weir__skip_layout_route(layout, routes[i]);
            used += (size_t)snprintf(text + used, capacity - used, "%s%u:%s%s%s", i > 0 ? " " : "",
                                     (unsigned)route->source, route->name_space,
                                     route->name_space[0] != 0 ? "." : "", route->name);
        }
        used += (size_t)snprintf(text + used, capacity - used, "]");
    }
}

static struct weir__skip_layout *make_layout(const struct weir__skip_decl *list, size_t count,
                                             const uint32_t *stage_of, uint32_t stages) {
    struct weir__skip_layout *layout = NULL;
    int status =
        weir__skip_layout_new(test_allocator(), list, (uint32_t)count, stage_of, stages, &layout);
    EXPECT_STATUS(status, WEIR_OK);
    return layout;
}

#define LAYOUT(stage_of, stages, ...)                                                              \
    make_layout(LIST(__VA_ARGS__), COUNT(__VA_ARGS__), stage_of, stages)

// LA-1
static void test_no_skips_give_an_empty_policy(void) {
    char text[256];
    struct weir__skip_layout *layout = make_layout(NULL, 0, (uint32_t[]){0, 1, 2}, 3);
    CHECK(layout != NULL);
    describe_policy(layout, 3, text, sizeof text);
    EXPECT_EQ_STR(text, "[] [] []");
    EXPECT_EQ_UINT(weir__skip_layout_count(layout), 0);
    weir__skip_layout_destroy(layout);
    weir__skip_layout_destroy(NULL);
}

// LA-1
static void test_skip_within_a_stage_has_no_route(void) {
    char text[256];
    struct weir__skip_layout *layout =
        LAYOUT(((uint32_t[]){0, 0, 1}), 2, STASH(0, "foo"), READ(1, "foo"), POP(1, "foo"));
    CHECK(layout != NULL);
    describe_policy(layout, 2, text, sizeof text);
    EXPECT_EQ_STR(text, "[] []");
    EXPECT_EQ_UINT(weir__skip_layout_count(layout), 0);
    EXPECT(!weir__skip_layout_requires_copy(layout, NULL, "foo"));
    weir__skip_layout_destroy(layout);
}

// LA-2
static void test_skips_go_past_the_stages_between(void) {
    char text[256];
    static const uint32_t identity[] = {0, 1, 2};
    struct weir__skip_layout *near = LAYOUT(identity, 2, STASH(0, "foo"), POP(1, "foo"));
    CHECK(near != NULL);
    describe_policy(near, 2, text, sizeof text);
    EXPECT_EQ_STR(text, "[] [0:foo]");
    weir__skip_layout_destroy(near);
    struct weir__skip_layout *far = LAYOUT(identity, 3, STASH(0, "foo"), POP(2, "foo"));
    CHECK(far != NULL);
    describe_policy(far, 3, text, sizeof text);
    EXPECT_EQ_STR(text, "[] [] [0:foo]");
    weir__skip_layout_destroy(far);
}

// LA-3
static void test_sources_are_sorted_by_stage(void) {
    char text[256];
    static const uint32_t identity[] = {0, 1, 2};
    struct weir__skip_layout *layout =
        LAYOUT(identity, 3, STASH(0, "foo"), STASH(1, "bar"), POP(2, "bar"), POP(2, "foo"));
    CHECK(layout != NULL);
    describe_policy(layout, 3, text, sizeof text);
    EXPECT_EQ_STR(text, "[] [] [0:foo 1:bar]");
    weir__skip_layout_destroy(layout);
    /* upstream's reverse case: names sort the other way, stages decide */
    layout = LAYOUT(identity, 3, STASH(0, "zoo"), STASH(1, "ape"), POP(2, "zoo"), POP(2, "ape"));
    CHECK(layout != NULL);
    describe_policy(layout, 3, text, sizeof text);
    EXPECT_EQ_STR(text, "[] [] [0:zoo 1:ape]");
    weir__skip_layout_destroy(layout);
}

// LA-3
static void test_one_name_in_two_namespaces_is_two_routes(void) {
    char text[256];
    struct weir__skip_layout *layout =
        LAYOUT(((uint32_t[]){0, 0, 1}), 2, STASH_IN(0, "b", "foo"), STASH_IN(0, "a", "foo"),
               POP_IN(2, "a", "foo"), POP_IN(2, "b", "foo"));
    CHECK(layout != NULL);
    describe_policy(layout, 2, text, sizeof text);
    EXPECT_EQ_STR(text, "[] [0:b.foo 0:a.foo]");
    weir__skip_layout_destroy(layout);
}

static void test_readers_are_stages_each_once(void) {
    struct weir__skip_layout *layout =
        LAYOUT(((uint32_t[]){0, 0, 1, 1, 2, 3}), 4, STASH(0, "v"), READ(1, "v"), READ(2, "v"),
               READ(3, "v"), READ(5, "v"), POP(5, "v"));
    CHECK(layout != NULL);
    if (EXPECT_EQ_UINT(weir__skip_layout_count(layout), 1)) {
        const struct weir__skip_route *route = weir__skip_layout_route(layout, 0);
        EXPECT_EQ_UINT(route->source, 0);
        EXPECT_EQ_UINT(route->reader_count, 2);
        EXPECT_EQ_UINT(route->readers[0], 1);
        EXPECT_EQ_UINT(route->readers[1], 3);
    }
    weir__skip_layout_destroy(layout);
}

static void test_layout_owns_its_texts(void) {
    char name[] = "foo", space[] = "n";
    struct weir__skip_layout *layout =
        LAYOUT(((uint32_t[]){0, 1}), 2, STASH_IN(0, space, name), POP_IN(1, "n", "foo"));
    CHECK(layout != NULL);
    name[0] = space[0] = '?';
    EXPECT(weir__skip_layout_requires_copy(layout, "n", "foo"));
    weir__skip_layout_destroy(layout);
}

// LA-4
static void test_requires_copy_answers_per_namespace_and_name(void) {
    static const uint32_t stage_of[] = {0, 0, 1};
    struct weir__skip_layout *layout =
        LAYOUT(stage_of, 2, STASH(0, "far"), STASH_IN(0, "n", "far"), STASH_IN(0, "n", "only"),
               STASH(0, "near"), POP(1, "near"), POP_IN(1, "n", "far"), POP(2, "far"),
               POP_IN(2, "n", "only"));
    CHECK(layout != NULL);
    EXPECT(weir__skip_layout_requires_copy(layout, NULL, "far"));
    EXPECT(weir__skip_layout_requires_copy(layout, "", "far"));
    EXPECT(weir__skip_layout_requires_copy(layout, "n", "only"));
    EXPECT(!weir__skip_layout_requires_copy(layout, "n", "far"));
    EXPECT(!weir__skip_layout_requires_copy(layout, "", "near"));
    EXPECT(!weir__skip_layout_requires_copy(layout, "", "only"));
    EXPECT(!weir__skip_layout_requires_copy(layout, "", "unknown"));
    weir__skip_layout_destroy(layout);
}

// LA-5
static void test_copying_what_is_no_portal_is_an_error(void) {
    static const uint32_t stage_of[] = {0, 0, 1};
    struct weir__skip_layout *layout =
        LAYOUT(stage_of, 2, STASH(0, "far"), STASH(0, "near"), POP(1, "near"), POP(2, "far"));
    CHECK(layout != NULL);
    struct weir_error error = {0};
    uint32_t route = 99;
    EXPECT_STATUS(weir__skip_layout_find(layout, "", "near", &error, &route), WEIR_ERR_NOT_FOUND);
    EXPECT_STATUS(error.status, WEIR_ERR_NOT_FOUND);
    EXPECT_CONTAINS(error.message, "skip 'near' is no portal");
    EXPECT_STATUS(weir__skip_layout_find(layout, "n", "far", &error, &route), WEIR_ERR_NOT_FOUND);
    EXPECT_CONTAINS(error.message, "skip 'far' of namespace 'n' is no portal");
    EXPECT_EQ_UINT(route, 99);
    EXPECT_STATUS(weir__skip_layout_find(layout, NULL, "far", &error, &route), WEIR_OK);
    EXPECT_EQ_UINT(route, 0);
    weir__skip_layout_destroy(layout);
}

static void test_empty_skip_has_a_route_but_no_copy(void) {
    char text[256];
    struct weir__skip_decl list[] = {STASH(0, "void"), POP(1, "void")};
    list[0].empty = true;
    struct weir__skip_layout *layout = make_layout(list, 2, (uint32_t[]){0, 1}, 2);
    CHECK(layout != NULL);
    if (EXPECT_EQ_UINT(weir__skip_layout_count(layout), 1)) {
        EXPECT(weir__skip_layout_route(layout, 0)->empty);
    }
    EXPECT(!weir__skip_layout_requires_copy(layout, "", "void"));
    describe_policy(layout, 2, text, sizeof text);
    EXPECT_EQ_STR(text, "[] []");
    weir__skip_layout_destroy(layout);
}

/* Many skips between random stages, against a search over all pairs. */
static void test_large_layouts_hold_every_route(void) {
    enum { SKIPS = 300, STAGES = 9 };
    static struct weir__skip_decl list[2 * SKIPS];
    static char names[SKIPS][8];
    uint32_t stage_of[2 * SKIPS], source[SKIPS], target[SKIPS];
    for (uint32_t i = 0; i < SKIPS; i++) {
        snprintf(names[i], sizeof names[i], "s%u", (unsigned)((i * 7919) % SKIPS));
        source[i] = (uint32_t)test_random_below(STAGES);
        target[i] = source[i] + (uint32_t)test_random_below(STAGES - source[i]);
        list[i] = (struct weir__skip_decl)STASH(i, names[i]);
        list[SKIPS + i] = (struct weir__skip_decl)POP(SKIPS + i, names[i]);
        stage_of[i] = source[i];
        stage_of[SKIPS + i] = target[i];
    }
    struct weir__skip_layout *layout = make_layout(list, 2 * SKIPS, stage_of, STAGES);
    CHECK(layout != NULL);
    uint32_t crossing = 0, arriving = 0;
    for (uint32_t i = 0; i < SKIPS; i++) {
        uint32_t route = 0;
        bool crosses = source[i] != target[i];
        crossing += crosses;
        EXPECT_EQ_INT(weir__skip_layout_requires_copy(layout, "", names[i]), crosses);
        if (weir__skip_layout_find(layout, "", names[i], NULL, &route) == WEIR_OK) {
            EXPECT_EQ_UINT(weir__skip_layout_route(layout, route)->source, source[i]);
            EXPECT_EQ_UINT(weir__skip_layout_route(layout, route)->readers[0], target[i]);
        }
    }
    for (uint32_t s = 0; s < STAGES; s++) {
        const uint32_t *routes = NULL;
        uint32_t count = weir__skip_layout_arriving(layout, s, &routes);
        for (uint32_t k = 0; k < count; k++) {
            EXPECT_EQ_UINT(weir__skip_layout_route(layout, routes[k])->readers[0], s);
            EXPECT(k == 0 || weir__skip_layout_route(layout, routes[k - 1])->source <=
                                 weir__skip_layout_route(layout, routes[k])->source);
        }
        arriving += count;
    }
    EXPECT_EQ_UINT(weir__skip_layout_count(layout), crossing);
    EXPECT_EQ_UINT(arriving, crossing);
    weir__skip_layout_destroy(layout);
}

static void test_lack_of_memory_is_reported(void) {
    static const struct weir__skip_decl list[] = {STASH(0, "foo"), POP(1, "foo")};
    static const uint32_t stage_of[] = {0, 1};
    uint64_t k = 0;
    for (bool fired = true; fired; k++) {
        struct weir__skip_layout *layout = NULL;
        test_allocator_fail_at(k + 1, false);
        int status = weir__skip_layout_new(test_allocator(), list, 2, stage_of, 2, &layout);
        fired = test_allocator_fired();
        test_allocator_fail_at(0, false);
        CHECK_STATUS(status, fired ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
        weir__skip_layout_destroy(layout);
    }
    CHECK(k > 5);
    struct weir_faults faults = {.allocator = test_allocator()};
    test_allocator_fail_at(1, true);
    int status = weir__skip_verify(list, 2, NULL, NULL, &faults);
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
    TEST(readers_are_stages_each_once), TEST(layout_owns_its_texts),
    TEST(requires_copy_answers_per_namespace_and_name), TEST(copying_what_is_no_portal_is_an_error),
    TEST(empty_skip_has_a_route_but_no_copy), TEST(large_layouts_hold_every_route),
    TEST(lack_of_memory_is_reported))
