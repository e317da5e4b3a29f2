/* SPDX-License-Identifier: MIT */
/*
 * Do stashes and their uses match? The declarations are sorted so that the uses of one skip stand
 * together; each skip is then checked alone. Upstream walks the layers with two sets and stops at a
 * skip's first fault; here a skip can have several, and all are told.
 */
#include "skip/skip.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- order ---- */

static const char *text_of(const char *text) {
    return text != NULL ? text : "";
}

static int compare_names(const struct weir__skip_decl *a, const struct weir__skip_decl *b) {
    int order = strcmp(text_of(a->use.name_space), text_of(b->use.name_space));
    return order != 0 ? order : strcmp(text_of(a->use.name), text_of(b->use.name));
}

static bool before(const struct weir__skip_decl *declarations, uint32_t a, uint32_t b) {
    int order = compare_names(&declarations[a], &declarations[b]);
    return order != 0 ? order < 0 : a < b;
}

/* Lets order[root] sink in a heap of `count` whose top is the last in order. */
static void sink(const struct weir__skip_decl *declarations, uint32_t *order, uint32_t root,
                 uint32_t count) {
    assert(root < count);
    for (;;) {
        uint32_t child = 2 * root + 1;
        if (child >= count) return;
        if (child + 1 < count && before(declarations, order[child], order[child + 1])) child++;
        if (!before(declarations, order[root], order[child])) return;
        uint32_t moved = order[root];
        order[root] = order[child];
        order[child] = moved;
        root = child;
    }
}

/* A heap sort: the C library's qsort may allocate, and takes no context. */
void weir__skip_sort(const struct weir__skip_decl *declarations, uint32_t count, uint32_t *order) {
    assert(count <= UINT32_MAX / 2);
    for (uint32_t i = 0; i < count; i++) order[i] = i;
    for (uint32_t i = count / 2; i-- > 0;) sink(declarations, order, i, count);
    for (uint32_t end = count; end-- > 1;) {
        uint32_t last = order[0];
        order[0] = order[end];
        order[end] = last;
        sink(declarations, order, 0, end);
    }
}

/* ---- one skip ---- */

struct verifier {
    const struct weir__skip_decl *declarations;
    const char *(*owner_name)(void *context, uint32_t owner);
    void *context;
    struct weir_faults *faults;
    uint32_t count;       /**< faults so far */
    const uint32_t *uses; /**< of the skip that is being checked, in order of execution */
    uint32_t use_count;
    char skip[160]; /**< "skip 'foo'" or "skip 'foo' of namespace 'a'" */
};

static const char *const verbs[] = {
    [WEIR_SKIP_STASH] = "stashed",
    [WEIR_SKIP_READ] = "read",
    [WEIR_SKIP_POP] = "popped",
};

static const struct weir__skip_decl *use_at(const struct verifier *verifier, uint32_t index) {
    assert(index < verifier->use_count);
    return &verifier->declarations[verifier->uses[index]];
}

static const char *name_owner(const struct verifier *verifier, uint32_t owner, char text[96]) {
    const char *name =
        verifier->owner_name != NULL ? verifier->owner_name(verifier->context, owner) : NULL;
    if (name != NULL)
        snprintf(text, 96, "%s", name);
    else
        snprintf(text, 96, "owner %" PRIu32, owner);
    return text;
}

/* One line: the skip, what one owner did, and what it has to do with another's doing. */
static void fault(struct verifier *verifier, const struct weir__skip_decl *decl, const char *what,
                  const struct weir__skip_decl *other, const char *advice) {
    assert(decl != NULL);
    char owner[96], second[96];
    name_owner(verifier, decl->owner, owner);
    if (other != NULL) {
        name_owner(verifier, other->owner, second);
        weir_faults_add(verifier->faults, "%s is %s by %s %s %s: %s", verifier->skip,
                        verbs[decl->use.verb], owner, what, second, advice);
    } else {
        weir_faults_add(verifier->faults, "%s is %s by %s %s: %s", verifier->skip,
                        verbs[decl->use.verb], owner, what, advice);
    }
    verifier->count++;
}

static void name_skip(struct verifier *verifier) {
    const struct weir__skip_decl *decl = use_at(verifier, 0);
    const char *name = text_of(decl->use.name), *space = text_of(decl->use.name_space);
    if (space[0] == 0) {
        snprintf(verifier->skip, sizeof verifier->skip, "skip '%.120s'", name);
    } else {
        snprintf(verifier->skip, sizeof verifier->skip, "skip '%.60s' of namespace '%.60s'", name,
                 space);
    }
}

/* The first use with that verb, or NULL. */
static const struct weir__skip_decl *first_of(const struct verifier *verifier,
                                              enum weir_skip_verb verb) {
    for (uint32_t i = 0; i < verifier->use_count; i++) {
        if (use_at(verifier, i)->use.verb == verb) return use_at(verifier, i);
    }
    return NULL;
}

/* The second and further ones with that verb. */
static void verify_once(struct verifier *verifier, enum weir_skip_verb verb, const char *twice,
                        const char *advice) {
    const struct weir__skip_decl *first = first_of(verifier, verb);
    for (uint32_t i = 0; i < verifier->use_count; i++) {
        const struct weir__skip_decl *decl = use_at(verifier, i);
        if (decl->use.verb == verb && decl != first) fault(verifier, decl, twice, first, advice);
    }
}

/* Every use against the stash that it belongs to, the first. */
static void verify_use(struct verifier *verifier, const struct weir__skip_decl *decl,
                       const struct weir__skip_decl *stash, const struct weir__skip_decl *pop) {
    if (stash == NULL) {
        fault(verifier, decl, "but never stashed", NULL,
              "stash it in an earlier one, or drop this use");
    } else if (decl->owner == stash->owner) {
        fault(verifier, decl, "and stashed by", stash,
              "one that stashes a skip may not use it as well");
    } else if (decl < stash) {
        fault(verifier, decl, "before it is stashed by", stash,
              "a skip can only be used later than its stash");
    }
    if (decl->use.verb == WEIR_SKIP_READ && pop != NULL && decl > pop) {
        fault(verifier, decl, "after it is popped by", pop,
              "the pop is the last use: swap them, or make the pop a read");
    }
}

static void verify_skip(struct verifier *verifier) {
    assert(verifier->use_count > 0);
    const struct weir__skip_decl *stash = first_of(verifier, WEIR_SKIP_STASH);
    const struct weir__skip_decl *pop = first_of(verifier, WEIR_SKIP_POP);
    bool used = false;
    name_skip(verifier);
    verify_once(verifier, WEIR_SKIP_STASH, "and already stashed by",
                "a skip is stashed once: use another name or namespace");
    verify_once(verifier, WEIR_SKIP_POP, "and already popped by",
                "a skip is popped once: make all uses but the last reads");
    for (uint32_t i = 0; i < verifier->use_count; i++) {
        const struct weir__skip_decl *decl = use_at(verifier, i);
        if (decl->use.verb != WEIR_SKIP_STASH) {
            used = true;
            verify_use(verifier, decl, stash, pop);
        }
    }
    if (!used) {
        fault(verifier, stash, "but never popped", NULL,
              "pop or read it in a later one, or drop the stash");
    }
}

int weir__skip_verify(const struct weir__skip_decl *declarations, uint32_t count,
                      const char *(*owner_name)(void *context, uint32_t owner), void *context,
                      struct weir_faults *faults) {
    const struct weir_allocator *allocator = faults != NULL ? faults->allocator : NULL;
    uint32_t *order = weir__acquire(allocator, count, sizeof *order);
    if (order == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    weir__skip_sort(declarations, count, order);
    struct verifier verifier = {.declarations = declarations,
                                .owner_name = owner_name,
                                .context = context,
                                .faults = faults};
    for (uint32_t begin = 0; begin < count; begin += verifier.use_count) {
        verifier.uses = &order[begin];
        verifier.use_count = 1;
        while (begin + verifier.use_count < count &&
               compare_names(&declarations[order[begin]],
                             &declarations[order[begin + verifier.use_count]]) == 0)
            verifier.use_count++;
        verify_skip(&verifier);
    }
    weir__release(allocator, order, count, sizeof *order);
    return verifier.count == 0 ? WEIR_OK : WEIR_ERR_SKIP;
}
