/* SPDX-License-Identifier: MIT */
/* What stands around the model: normalizer, splitter, template, decoder. */
#include "text/tokenizer_inside.h"
#include "text/unicode.h"
#include "text/utf8.h"

#include <stdio.h>
#include <string.h>

/* Of ByteLevel with use_regex. */
static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static bool refuse_type(struct tokenizer_reading *r, const char *spot, const char *type,
                        const char *taken) {
    return tokenizer_refuse(r, spot, "the type '%.40s' is not taken, only %s", type, taken);
}

static bool copy(struct tokenizer_reading *r, const char *text, const char **out) {
    *out = weir__pool_text(&r->tokenizer->pool, text);
    return *out != NULL || tokenizer_no_memory(r);
}

/* {"String": TEXT}, not empty. */
static bool read_string(struct tokenizer_reading *r, const char *spot, const json_t *part,
                        const char **text) {
    const json_t *pattern = json_object_get(part, "pattern");
    return tokenizer_check_keys(r, spot, pattern, "String") &&
           tokenizer_text(r, spot, pattern, "String", text) &&
           (**text != '\0' || tokenizer_refuse(r, spot, "replaces nothing"));
}

/* ---- normalizer ---- */

static bool read_nfc(struct tokenizer_reading *r, const char *spot, const json_t *part) {
    if (!tokenizer_check_keys(r, spot, part, "type")) return false;
    return normal_is_known() ||
           tokenizer_refuse(r, spot, "NFC needs a utf8proc of Unicode 13 or newer");
}

static bool read_normal(struct tokenizer_reading *r, const char *spot, const char *type,
                        const json_t *part, struct normal_step *step) {
    const char *from = "", *to = "";
    bool good;
    if (strcmp(type, "NFC") == 0) {
        step->kind = NORMAL_NFC;
        good = read_nfc(r, spot, part);
    } else if (strcmp(type, "Prepend") == 0) {
        step->kind = NORMAL_PREPEND;
        good = tokenizer_check_keys(r, spot, part, "type prepend") &&
               tokenizer_text(r, spot, part, "prepend", &to);
    } else if (strcmp(type, "Replace") == 0) {
        step->kind = NORMAL_REPLACE;
        good = tokenizer_check_keys(r, spot, part, "type pattern content") &&
               read_string(r, spot, part, &from) && tokenizer_text(r, spot, part, "content", &to);
    } else {
        good = refuse_type(r, spot, type, "NFC, Prepend, Replace and Sequence");
    }
    return good && copy(r, from, &step->from) && copy(r, to, &step->to);
}

static bool take_normal(struct tokenizer_reading *r, const char *spot, const char *type,
                        const json_t *part) {
    struct normalizer *normalizer = &r->tokenizer->normalizer;
    if (normalizer->count == NORMAL_STEPS_MAX)
        return tokenizer_refuse(r, spot, "more than %d normalizers", NORMAL_STEPS_MAX);
    return read_normal(r, spot, type, part, &normalizer->steps[normalizer->count++]);
}

bool tokenizer_read_normalizer(struct tokenizer_reading *r) {
    const json_t *part = json_object_get(r->root, "normalizer");
    r->tokenizer->normalizer.marks = r->tokenizer->marks;
    if (part == NULL || json_is_null(part)) return true;
    return tokenizer_parts(r, "normalizer", "normalizers", part, take_normal);
}

/* ---- splitter ---- */

static bool compile(struct tokenizer_reading *r, const char *spot, const char *text,
                    struct pattern **pattern) {
    char why[128];
    int status = pattern_new(&r->tokenizer->pool, text, why, pattern);
    if (status == WEIR_ERR_OUT_OF_MEMORY) return tokenizer_no_memory(r);
    return status == WEIR_OK || tokenizer_refuse(r, spot, "%s", why);
}

static bool read_split(struct tokenizer_reading *r, const char *spot, const json_t *part,
                       struct split_step *step) {
    const char *text, *behavior;
    bool invert;
    const json_t *pattern = json_object_get(part, "pattern");
    if (!tokenizer_check_keys(r, spot, part, "type pattern behavior invert") ||
        !tokenizer_flag(r, spot, part, "invert", false, &invert) ||
        !tokenizer_text(r, spot, part, "behavior", &behavior) ||
        !tokenizer_check_keys(r, spot, pattern, "Regex") ||
        !tokenizer_text(r, spot, pattern, "Regex", &text))
        return false;
    bool removed = strcmp(behavior, "Removed") == 0;
    if (!removed && strcmp(behavior, "Isolated") != 0)
        return tokenizer_refuse(r, spot, "the behavior '%.40s' is not taken, only %s", behavior,
                                "Isolated and Removed");
    step->kind = SPLIT_PATTERN;
    step->removes_matches = removed && !invert;
    step->removes_others = removed && invert;
    return compile(r, spot, text, &step->pattern);
}

static bool read_digits(struct tokenizer_reading *r, const char *spot, const json_t *part,
                        struct split_step *step) {
    step->kind = SPLIT_DIGITS;
    return tokenizer_check_keys(r, spot, part, "type individual_digits") &&
           tokenizer_flag(r, spot, part, "individual_digits", false, &step->single);
}

/* ByteLevel, which stands among the splitters and behind the model. */
static bool read_bytes(struct tokenizer_reading *r, const char *spot, const json_t *part,
                       bool *adds_space, bool *trims, bool *splits) {
    return tokenizer_check_keys(r, spot, part, "type add_prefix_space trim_offsets use_regex") &&
           tokenizer_flag(r, spot, part, "add_prefix_space", true, adds_space) &&
           tokenizer_flag(r, spot, part, "trim_offsets", true, trims) &&
           tokenizer_flag(r, spot, part, "use_regex", true, splits);
}

static bool read_byte_step(struct tokenizer_reading *r, const char *spot, const json_t *part,
                           struct split_step *step) {
    bool trims, splits;
    step->kind = SPLIT_BYTES;
    r->tokenizer->over_bytes = true;
    if (!read_bytes(r, spot, part, &step->adds_space, &trims, &splits)) return false;
    return !splits || compile(r, spot, gpt2_pattern, &step->pattern);
}

static bool take_split(struct tokenizer_reading *r, const char *spot, const char *type,
                       const json_t *part) {
    struct tokenizer *tokenizer = r->tokenizer;
    if (tokenizer->over_bytes) return tokenizer_refuse(r, spot, "stands behind ByteLevel");
    if (tokenizer->step_count == SPLIT_STEPS_MAX)
        return tokenizer_refuse(r, spot, "more than %d pre_tokenizers", SPLIT_STEPS_MAX);
    struct split_step *step = &tokenizer->steps[tokenizer->step_count++];
    if (strcmp(type, "Split") == 0) return read_split(r, spot, part, step);
    if (strcmp(type, "Digits") == 0) return read_digits(r, spot, part, step);
    if (strcmp(type, "ByteLevel") == 0) return read_byte_step(r, spot, part, step);
    return refuse_type(r, spot, type, "Split, Digits, ByteLevel and Sequence");
}

bool tokenizer_read_splitter(struct tokenizer_reading *r) {
    const json_t *part = json_object_get(r->root, "pre_tokenizer");
    if (part == NULL || json_is_null(part)) return true;
    return tokenizer_parts(r, "pre_tokenizer", "pretokenizers", part, take_split);
}

/* ---- template ---- */

/* The numbers of one of the template's tokens, before the text or behind it. */
static bool add_special(struct tokenizer_reading *r, const char *spot, const json_t *names,
                        const json_t *special, bool behind) {
    struct tokenizer *tokenizer = r->tokenizer;
    uint32_t *count = behind ? &tokenizer->after_count : &tokenizer->before_count;
    uint32_t *ids = behind ? tokenizer->after : tokenizer->before;
    const char *name = json_string_value(json_object_get(special, "id"));
    const json_t *list = json_object_get(name != NULL ? json_object_get(names, name) : NULL, "ids");
    if (!json_is_array(list)) return tokenizer_malformed(r, spot, "a special token has no 'ids'");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) >= TEXT_BYTES_MAX)
            return tokenizer_malformed(r, spot, "an id of '%.40s' is no token's", name);
        if (*count == TEMPLATE_MAX)
            return tokenizer_refuse(r, spot, "more than %d special tokens", TEMPLATE_MAX);
        ids[(*count)++] = (uint32_t)json_integer_value(id);
    }
    return true;
}

static bool read_template(struct tokenizer_reading *r, const char *spot, const json_t *part) {
    uint32_t texts = 0;
    const json_t *single = json_object_get(part, "single");
    const json_t *names = json_object_get(part, "special_tokens");
    r->has_template = true;
    if (!tokenizer_check_keys(r, spot, part, "type single pair special_tokens")) return false;
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *piece = json_array_get(single, i);
        const json_t *special = json_object_get(piece, "SpecialToken");
        const json_t *sequence = json_object_get(piece, "Sequence");
        const char *id = json_string_value(json_object_get(sequence, "id"));
        if (special == NULL && (id == NULL || strcmp(id, "A") != 0))
            return tokenizer_malformed(r, spot, "single[%zu] is no SpecialToken or Sequence A", i);
        if (special != NULL && !add_special(r, spot, names, special, texts > 0)) return false;
        texts += special == NULL;
    }
    return texts == 1 || tokenizer_refuse(r, spot, "'single' has not one Sequence A");
}

static bool take_post(struct tokenizer_reading *r, const char *spot, const char *type,
                      const json_t *part) {
    struct tokenizer *tokenizer = r->tokenizer;
    bool splits;
    if (r->has_template) return tokenizer_refuse(r, spot, "stands behind a template");
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(r, spot, part);
    if (strcmp(type, "ByteLevel") != 0)
        return refuse_type(r, spot, type, "ByteLevel, TemplateProcessing and Sequence");
    if (tokenizer->trims) return tokenizer_refuse(r, spot, "trims a second time");
    return read_bytes(r, spot, part, &tokenizer->keeps_first_blank, &tokenizer->trims, &splits);
}

bool tokenizer_read_post(struct tokenizer_reading *r) {
    const json_t *part = json_object_get(r->root, "post_processor");
    if (part == NULL || json_is_null(part)) return true;
    return tokenizer_parts(r, "post_processor", "processors", part, take_post);
}

/* ---- decoder ---- */

/* Replace, ByteFallback, Fuse, perhaps Strip: each behind the one before it. */
static bool check_fallback(struct tokenizer_reading *r, const json_t *decoders) {
    static const struct {
        const char *type, *keys;
    } known[] = {{"Replace", "type pattern content"},
                 {"ByteFallback", "type"},
                 {"Fuse", "type"},
                 {"Strip", "type content start stop"}};
    if (json_array_size(decoders) < 3)
        return tokenizer_refuse(r, "decoder.decoders", "is too short a list");
    for (size_t i = 0; i < json_array_size(decoders); i++) {
        char spot[64];
        const json_t *part = json_array_get(decoders, i);
        const char *type = json_string_value(json_object_get(part, "type"));
        snprintf(spot, sizeof spot, "decoder.decoders[%zu]", i);
        if (i >= WEIR__COUNT_OF(known) || type == NULL || strcmp(type, known[i].type) != 0)
            return tokenizer_refuse(r, spot,
                                    "only Replace, ByteFallback, Fuse and perhaps Strip "
                                    "are taken, in this order");
        if (!tokenizer_check_keys(r, spot, part, known[i].keys)) return false;
    }
    return true;
}

static bool read_strip(struct tokenizer_reading *r, const json_t *strip) {
    static const char spot[] = "decoder.decoders[3]";
    const char *content;
    json_int_t start = json_integer_value(json_object_get(strip, "start"));
    json_int_t stop = json_integer_value(json_object_get(strip, "stop"));
    if (!tokenizer_text(r, spot, strip, "content", &content)) return false;
    if (strcmp(content, " ") != 0 || start < 0 || start > 1000 || stop != 0)
        return tokenizer_refuse(r, spot, "strips other than blanks at the beginning");
    r->tokenizer->strip_blanks = (uint32_t)start;
    return true;
}

static bool read_fallback(struct tokenizer_reading *r, const json_t *decoders) {
    static const char spot[] = "decoder.decoders[0]";
    const json_t *replace = json_array_get(decoders, 0);
    const char *from, *to;
    if (!check_fallback(r, decoders) || !read_string(r, spot, replace, &from) ||
        !tokenizer_text(r, spot, replace, "content", &to))
        return false;
    if (strcmp(from, "\u2581") != 0 || strcmp(to, " ") != 0)
        return tokenizer_refuse(r, spot, "replaces other than U+2581 by a blank");
    return json_array_size(decoders) == 3 || read_strip(r, json_array_get(decoders, 3));
}

bool tokenizer_read_decoder(struct tokenizer_reading *r) {
    const json_t *part = json_object_get(r->root, "decoder");
    const char *type = json_string_value(json_object_get(part, "type"));
    bool adds_space, trims, splits;
    if (type == NULL) return tokenizer_refuse(r, "decoder", "is missing");
    if (strcmp(type, "ByteLevel") == 0) {
        r->tokenizer->decodes_bytes = true;
        return read_bytes(r, "decoder", part, &adds_space, &trims, &splits);
    }
    if (strcmp(type, "Sequence") != 0)
        return refuse_type(r, "decoder", type, "ByteLevel and Sequence");
    return tokenizer_check_keys(r, "decoder", part, "type decoders") &&
           read_fallback(r, json_object_get(part, "decoders"));
}
