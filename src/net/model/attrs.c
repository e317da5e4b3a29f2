/* SPDX-License-Identifier: MIT */
/* Attributes of layers: checked once when a layer is added, so that build functions just ask. */
#include "net/model/layer.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdatomic.h>
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

/** PyTorch's other cases. */
static bool check_fixed(const struct weir_attr_rule *rule, const struct weir_attr *given,
                        const char *label, struct weir_faults *faults) {
    assert(rule->fixed && given->kind == rule->kind);
    char text[32];
    const char *only = rule->kind == WEIR_ATTR_KIND_TEXT ? rule->text : text;
    bool flag = rule->kind == WEIR_ATTR_KIND_FLAG;
    bool good = given->integer == rule->integer && given->real == rule->real;
    if (rule->kind == WEIR_ATTR_KIND_PAIR) good &= given->second == rule->integer;
    if (rule->kind == WEIR_ATTR_KIND_TEXT)
        good = given->text != NULL && strcmp(given->text, rule->text) == 0;
    if (good) return true;
    snprintf(text, sizeof text, "%lld", (long long)rule->integer);
    if (flag) only = rule->integer != 0 ? "true" : "false";
    weir_faults_add(faults, "layer %s: %s may only be %s: nothing else is offered", label,
                    rule->key, only);
    return false;
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
        weir_faults_add(faults, "layer %s: %s must be %s, not %s", label, rule->key,
                        kind_names[rule->kind], kind_names[given->kind]);
        return false;
    }
    if (rule->fixed) return check_fixed(rule, given, label, faults);
    switch (rule->kind) {
    case WEIR_ATTR_KIND_PAIR:
    case WEIR_ATTR_KIND_INT: return check_int(rule, given, label, faults);
    case WEIR_ATTR_KIND_REAL: return check_real(rule, given, label, faults);
    case WEIR_ATTR_KIND_TEXT: return check_text(rule, given, label, faults);
    case WEIR_ATTR_KIND_FLAG: return true;
    }
    return false;
}

enum { KEYS_MAX = 30 };

static void fault_unknown(const struct weir_layer_type *type, const char *label, const char *key,
                          struct weir_faults *faults) {
    const char *keys[KEYS_MAX + 2];
    assert(type->attr_count == 0 || type->attrs != NULL);
    char list[320] = "none";
    size_t used = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < type->attr_count && count < KEYS_MAX; i++) {
        keys[count++] = type->attrs[i].key;
        if (type->attrs[i].fixed || used >= sizeof list) continue;
        int more = snprintf(list + used, sizeof list - used, "%s%s", used == 0 ? "" : ", ",
                            type->attrs[i].key);
        used += more > 0 ? (size_t)more : 0;
    }
    keys[count++] = frozen.key;
    keys[count] = NULL;
    const char *nearest = weir__nearest(key, keys);
    if (nearest != NULL)
        weir_faults_add(faults, "layer %s: no attribute '%s': did you mean '%s'? It takes: %s",
                        label, key, nearest, list);
    else
        weir_faults_add(faults, "layer %s: no attribute '%s'; it takes: %s", label, key, list);
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
    for (uint32_t i = 0; i < given.count; i++) {
        const char *key = given.list[i].key;
        const struct weir_attr_rule *rule = find_rule(type, key);
        if (rule == NULL) {
            fault_unknown(type, label, key, faults);
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

void weir__attrs_check_input(struct weir_builder *builder, const struct weir_layer *layer,
                             const struct weir_value *x) {
    char text[96];
    struct weir_tensor tensor = weir_value_tensor(x);
    for (uint32_t i = 0; i < layer->type->attr_count; i++) {
        const struct weir_attr_rule *rule = &layer->type->attrs[i];
        const struct weir_attr *given = find_given(layer->attrs, rule->key);
        if (rule->of_input == 0 || given == NULL) continue;
        int64_t at = rule->of_input > 0 ? rule->of_input - 1 : tensor.rank + rule->of_input;
        /* An input of another rank is the op's fault to tell. */
        if (at < 0 || at >= tensor.rank || given->integer == tensor.shape[at]) continue;
        weir__builder_note(builder, WEIR_ERR_SHAPE,
                           "%s is %lld, but its input has %lld (%s): leave it out, or give %lld",
                           rule->key, (long long)given->integer, (long long)tensor.shape[at],
                           weir__tensor_text(&tensor, text, sizeof text),
                           (long long)tensor.shape[at]);
    }
}

/* ---- asking ---- */

/** A key that the type does not list, or as another kind, is the build function's fault: it gets an
 * empty value, and the net is refused when it has returned. */
static const struct weir_attr_rule *rule_of(const struct weir_layer *layer, const char *key,
                                            enum weir_attr_kind kind) {
    static const struct weir_attr_rule none = {.text = ""};
    const struct weir_attr_rule *rule = find_rule(layer->type, key);
    if (rule != NULL && rule->kind == kind) return rule;
    atomic_store(layer->misused_key, key);
    return &none;
}

/** Of the rule's kind; NULL: its default holds. */
static const struct weir_attr *given_for(const struct weir_layer *layer,
                                         const struct weir_attr_rule *rule) {
    return rule->key != NULL ? find_given(layer->attrs, rule->key) : NULL;
}

int64_t weir_layer_int(const struct weir_layer *layer, const char *key) {
    const struct weir_attr_rule *rule = rule_of(layer, key, WEIR_ATTR_KIND_INT);
    const struct weir_attr *given = given_for(layer, rule);
    return given != NULL ? given->integer : rule->integer;
}

double weir_layer_real(const struct weir_layer *layer, const char *key) {
    const struct weir_attr_rule *rule = rule_of(layer, key, WEIR_ATTR_KIND_REAL);
    const struct weir_attr *given = given_for(layer, rule);
    return given != NULL ? given->real : rule->real;
}

bool weir_layer_flag(const struct weir_layer *layer, const char *key) {
    const struct weir_attr_rule *rule = rule_of(layer, key, WEIR_ATTR_KIND_FLAG);
    const struct weir_attr *given = given_for(layer, rule);
    return (given != NULL ? given->integer : rule->integer) != 0;
}

const char *weir_layer_text(const struct weir_layer *layer, const char *key) {
    const struct weir_attr_rule *rule = rule_of(layer, key, WEIR_ATTR_KIND_TEXT);
    const struct weir_attr *given = given_for(layer, rule);
    return given != NULL ? given->text : rule->text;
}

void weir_layer_pair(const struct weir_layer *layer, const char *key, int64_t pair[2]) {
    const struct weir_attr_rule *rule = rule_of(layer, key, WEIR_ATTR_KIND_PAIR);
    const struct weir_attr *given = given_for(layer, rule);
    pair[0] = given != NULL ? given->integer : rule->integer;
    pair[1] = given != NULL ? given->second : rule->integer;
}

bool weir__layer_has_width(struct weir_builder *b, const struct weir_layer *layer,
                           const struct weir_value *x) {
    int64_t width = weir_layer_int(layer, "width");
    if (x->rank == 2 && x->shape[1] == width && weir_dtype_is_float(x->dtype)) return true;
    char text[96];
    struct weir_tensor tensor = weir_value_tensor(x);
    weir_builder_fail(b, WEIR_ERR_SHAPE, "it takes [tokens, %lld], but its input is %s",
                      (long long)width, weir__tensor_text(&tensor, text, sizeof text));
    return false;
}
