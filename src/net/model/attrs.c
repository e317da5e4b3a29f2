/* SPDX-License-Identifier: MIT */
/* Attributes of layers: checked once when a layer is added, so that build functions just ask. */
#include "net/model/layer.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const kind_names[] = {"a whole number", "a number", "true or false", "a text",
                                         "a whole number or two, height and width"};

_Static_assert(WEIR__COUNT_OF(kind_names) == WEIR_ATTR_KIND_PAIR + 1, "a name for each kind");

/* What every type takes. */
static const struct weir_attr_rule frozen = {.key = "frozen", .kind = WEIR_ATTR_KIND_FLAG};

static const struct weir_attr_rule *find_rule(const struct weir_layer_type *type, const char *key) {
    if (strcmp(key, frozen.key) == 0) return &frozen;
    for (uint32_t i = 0; i < type->attr_count; i++)
        if (strcmp(type->attrs[i].key, key) == 0) return &type->attrs[i];
    return NULL;
}

static const struct weir_attr *find_given(struct weir_attrs attrs, const char *key) {
    for (uint32_t i = 0; i < attrs.count; i++)
        if (strcmp(attrs.list[i].key, key) == 0) return &attrs.list[i];
    return NULL;
}

/* ---- checking ---- */

/** `value` is one of "a|b|c". */
static bool is_choice(const char *choices, const char *value) {
    size_t length = strlen(value);
    while (true) {
        size_t span = strcspn(choices, "|");
        if (span == length && strncmp(choices, value, span) == 0) return true;
        if (choices[span] == '\0') return false;
        choices += span + 1;
    }
}

static bool check_int(const struct weir_attr_rule *rule, const struct weir_attr *given,
                      const char *label, struct weir_faults *faults) {
    assert(rule->kind == WEIR_ATTR_KIND_INT || rule->kind == WEIR_ATTR_KIND_PAIR);
    int64_t wrong = given->integer;
    if (wrong >= rule->least && wrong <= INT32_MAX && rule->kind == WEIR_ATTR_KIND_PAIR)
        wrong = given->second;
    if (wrong >= rule->least && wrong <= INT32_MAX) return true;
    weir_faults_add(faults, "layer %s: %s is %lld, but must be from %lld to %d", label, rule->key,
                    (long long)wrong, (long long)rule->least, INT32_MAX);
    return false;
}

static bool check_real(const struct weir_attr_rule *rule, const struct weir_attr *given,
                       const char *label, struct weir_faults *faults) {
    assert(rule->kind == WEIR_ATTR_KIND_REAL);
    if (isfinite(given->real) && given->real >= 0 && given->real < rule->below) return true;
    weir_faults_add(faults, "layer %s: %s is %g, but must be from 0 to below %g", label, rule->key,
                    given->real, rule->below);
    return false;
}

/** Texts are printed: a skip's name stands in tables. */
static bool has_control(const char *text) {
    for (const char *c = text; *c != '\0'; c++)
        if (iscntrl((unsigned char)*c)) return true;
    return false;
}

static bool check_text(const struct weir_attr_rule *rule, const struct weir_attr *given,
                       const char *label, struct weir_faults *faults) {
    assert(rule->kind == WEIR_ATTR_KIND_TEXT);
    if (given->text != NULL && has_control(given->text)) {
        weir_faults_add(faults,
                        "layer %s: %s is '%.60s', which holds a control character: use letters, "
                        "digits and signs that can be seen",
                        label, rule->key, given->text);
        return false;
    }
    if (given->text != NULL && (rule->choices == NULL || is_choice(rule->choices, given->text)))
        return true;
    weir_faults_add(faults, "layer %s: %s is '%s', but must be one of %s", label, rule->key,
                    given->text == NULL ? "" : given->text,
                    rule->choices == NULL ? "all texts" : rule->choices);
    return false;
}

static bool check_attr(const struct weir_attr_rule *rule, const struct weir_attr *given,
                       const char *label, struct weir_faults *faults) {
    assert((size_t)rule->kind < WEIR__COUNT_OF(kind_names));
    if (given->kind != rule->kind) {
        weir_faults_add(faults, "layer %s: %s must be %s", label, rule->key,
                        kind_names[rule->kind]);
        return false;
    }
    switch (rule->kind) {
    case WEIR_ATTR_KIND_PAIR:
    case WEIR_ATTR_KIND_INT: return check_int(rule, given, label, faults);
    case WEIR_ATTR_KIND_REAL: return check_real(rule, given, label, faults);
    case WEIR_ATTR_KIND_TEXT: return check_text(rule, given, label, faults);
    case WEIR_ATTR_KIND_FLAG: return true;
    }
    return false;
}

static void list_keys(const struct weir_layer_type *type, char *text, size_t capacity) {
    assert(capacity > 0);
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < type->attr_count && used + 1 < capacity; i++) {
        int more =
            snprintf(text + used, capacity - used, "%s%s", i == 0 ? "" : ", ", type->attrs[i].key);
        used += more > 0 ? (size_t)more : 0;
    }
}

/** A whole number serves where a number or a pair is asked for. */
static struct weir_attr converted(const struct weir_attr_rule *rule, struct weir_attr given) {
    if (rule->kind == WEIR_ATTR_KIND_REAL && given.kind == WEIR_ATTR_KIND_INT) {
        given.kind = WEIR_ATTR_KIND_REAL;
        given.real = (double)given.integer;
    }
    if (rule->kind == WEIR_ATTR_KIND_PAIR && given.kind == WEIR_ATTR_KIND_INT) {
        given.kind = WEIR_ATTR_KIND_PAIR;
        given.second = given.integer;
    }
    return given;
}

static bool check_given(const struct weir_layer_type *type, const char *label,
                        struct weir_attrs given, struct weir_faults *faults) {
    bool good = true;
    char keys[160];
    for (uint32_t i = 0; i < given.count; i++) {
        const char *key = given.list[i].key;
        const struct weir_attr_rule *rule = find_rule(type, key);
        if (rule == NULL) {
            list_keys(type, keys, sizeof keys);
            weir_faults_add(faults, "layer %s: no attribute '%s'; it takes: %s", label, key,
                            keys[0] == '\0' ? "none" : keys);
        } else if (find_given(given, key) != &given.list[i]) {
            weir_faults_add(faults, "layer %s: %s is given twice", label, key);
            rule = NULL;
        }
        struct weir_attr attr = given.list[i];
        if (rule != NULL) attr = converted(rule, attr);
        good &= rule != NULL && check_attr(rule, &attr, label, faults);
    }
    return good;
}

static bool check_required(const struct weir_layer_type *type, const char *label,
                           struct weir_attrs given, struct weir_faults *faults) {
    bool good = true;
    for (uint32_t i = 0; i < type->attr_count; i++) {
        if (!type->attrs[i].required || find_given(given, type->attrs[i].key) != NULL) continue;
        weir_faults_add(faults, "layer %s: %s is missing", label, type->attrs[i].key);
        good = false;
    }
    return good;
}

int weir__attrs_copy(struct weir__pool *pool, const struct weir_layer_type *type, const char *label,
                     struct weir_attrs given, struct weir_attrs *attrs,
                     struct weir_faults *faults) {
    assert(given.count == 0 || given.list != NULL);
    bool good = check_given(type, label, given, faults);
    good &= check_required(type, label, given, faults);
    if (!good) return WEIR_ERR_ARGUMENT;
    struct weir_attr *list = weir__pool_take(pool, given.count, sizeof list[0]);
    if (list == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < given.count; i++) {
        const struct weir_attr_rule *rule = find_rule(type, given.list[i].key);
        assert(rule != NULL && rule->kind == converted(rule, given.list[i]).kind);
        list[i] = converted(rule, given.list[i]);
        list[i].key = rule->key;
        if (list[i].text != NULL) list[i].text = weir__pool_text(pool, list[i].text);
        if (list[i].text == NULL && given.list[i].text != NULL) return WEIR_ERR_OUT_OF_MEMORY;
    }
    *attrs = (struct weir_attrs){given.count, list};
    return WEIR_OK;
}

/* ---- asking ---- */

static const struct weir_attr_rule *rule_of(const struct weir_layer *layer, const char *key,
                                            enum weir_attr_kind kind) {
    const struct weir_attr_rule *rule = find_rule(layer->type, key);
    assert(rule != NULL && rule->kind == kind);
    (void)kind;
    return rule;
}

int64_t weir_layer_int(const struct weir_layer *layer, const char *key) {
    const struct weir_attr_rule *rule = rule_of(layer, key, WEIR_ATTR_KIND_INT);
    const struct weir_attr *given = find_given(layer->attrs, key);
    return given != NULL ? given->integer : rule->integer;
}

double weir_layer_real(const struct weir_layer *layer, const char *key) {
    const struct weir_attr_rule *rule = rule_of(layer, key, WEIR_ATTR_KIND_REAL);
    const struct weir_attr *given = find_given(layer->attrs, key);
    return given != NULL ? given->real : rule->real;
}

bool weir_layer_flag(const struct weir_layer *layer, const char *key) {
    const struct weir_attr_rule *rule = rule_of(layer, key, WEIR_ATTR_KIND_FLAG);
    const struct weir_attr *given = find_given(layer->attrs, key);
    return (given != NULL ? given->integer : rule->integer) != 0;
}

const char *weir_layer_text(const struct weir_layer *layer, const char *key) {
    const struct weir_attr_rule *rule = rule_of(layer, key, WEIR_ATTR_KIND_TEXT);
    const struct weir_attr *given = find_given(layer->attrs, key);
    return given != NULL ? given->text : rule->text;
}

void weir_layer_pair(const struct weir_layer *layer, const char *key, int64_t pair[2]) {
    const struct weir_attr_rule *rule = rule_of(layer, key, WEIR_ATTR_KIND_PAIR);
    const struct weir_attr *given = find_given(layer->attrs, key);
    pair[0] = given != NULL ? given->integer : rule->integer;
    pair[1] = given != NULL ? given->second : rule->integer;
}
