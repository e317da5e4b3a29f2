/* SPDX-License-Identifier: MIT */
/* What a search found, for people and for programs. */
#include "cli/json_text.h"
#include "cli/plan_text.h"
#include "cli/progress.h"
#include "cli/search.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_COLUMNS = 24, ROWS_MOST = 16 };

/* A list of numbers, cut where it is too long to be read. */
static void balance_text(const struct weir_planner_choice *choice, char text[64]) {
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t s = 0; s < choice->stages; s++) {
        char number[16];
        int more = snprintf(number, sizeof number, "%s%u", s == 0 ? "" : ",", choice->balance[s]);
        if (used + (size_t)more + 2 > LIST_COLUMNS) {
            snprintf(text + used, 64 - used, ",…");
            return;
        }
        memcpy(text + used, number, (size_t)more + 1);
        used += (size_t)more;
    }
}

/* "never", or how many of each. */
static void modes_text(const struct weir_planner_choice *choice, char text[64]) {
    uint32_t counts[WEIR_CHECKPOINT_NEVER + 1] = {0};
    size_t used = 0;
    for (uint32_t s = 0; s < choice->stages; s++) counts[choice->checkpoint[s]]++;
    text[0] = '\0';
    for (int m = WEIR_CHECKPOINT_ALWAYS; m <= WEIR_CHECKPOINT_NEVER; m++) {
        const char *name = weir_checkpoint_name((enum weir_checkpoint)m);
        if (counts[m] == choice->stages)
            snprintf(text, 64, "%s", name);
        else if (counts[m] > 0)
            used += (size_t)snprintf(text + used, 64 - used, "%s%u %s", used > 0 ? ", " : "",
                                     counts[m], name);
    }
}

static void print_row(FILE *to, const struct search *search,
                      const struct weir_planner_choice *choice, const char *mark) {
    char bytes[24], balance[64], modes[64], step[32];
    balance_text(choice, balance);
    modes_text(choice, modes);
    fprintf(to, "%10s %12s  %-6s  %-11s %6u %6u  %-*s  %s%s\n", time_text(choice->step, step),
            plan_text_bytes(choice->bytes, bytes), mark, choice->schedule,
            search_chunks(search, choice), choice->stages, LIST_COLUMNS, balance, modes,
            choice->recompute_late ? ", late" : "");
}

static bool is_winner(const struct search *search, const struct weir_planner_choice *choice) {
    const struct weir_planner_choice *winner = search->result.winner;
    return winner != NULL && choice->step == winner->step && choice->bytes == winner->bytes &&
           choice->micro_batches == winner->micro_batches;
}

/* A winner for its chunks' sake need not be on the front. */
static bool has_winner(const struct search *search) {
    bool found = search->result.winner == NULL;
    for (uint32_t i = 0; i < search->result.front_count; i++)
        found |= is_winner(search, &search->result.front[i]);
    return found;
}

/* All, or of a long front so many, the winner among them. */
static void print_front(FILE *to, const struct search *search) {
    const struct weir_planner_result *result = &search->result;
    uint32_t stride = (result->front_count + ROWS_MOST - 1) / ROWS_MOST;
    bool shown = has_winner(search);
    fprintf(to, "\n%10s %12s  %-6s  %-11s %6s %6s  %-*s  %s\n", "step", "worst worker", "",
            "schedule", "chunks", "stages", LIST_COLUMNS, "layers", "checkpoint");
    for (uint32_t i = 0; i < result->front_count; i++) {
        const struct weir_planner_choice *choice = &result->front[i];
        bool winner = is_winner(search, choice);
        if (!shown && choice->step > result->winner->step) {
            print_row(to, search, result->winner, "chosen");
            shown = true;
        }
        if (i % stride != 0 && i + 1 < result->front_count && !winner) continue;
        print_row(to, search, choice, winner ? "chosen" : choice->fits ? "" : "over");
    }
    if (!shown) print_row(to, search, result->winner, "chosen");
}

static void print_parts(FILE *to, const char *name, const struct weir_planner_choice *choice) {
    const struct weir_planner_parts *parts = &choice->parts;
    const double seconds[] = {choice->step,     parts->work,   parts->recompute, parts->bubble,
                              parts->imbalance, parts->copies, parts->host,      parts->shared};
    char text[32];
    fprintf(to, "%-10s %-11s", name, choice->schedule);
    for (size_t i = 0; i < sizeof seconds / sizeof seconds[0]; i++)
        fprintf(to, " %8s", time_text(seconds[i], text));
    fprintf(to, "  %12s%s\n", plan_text_bytes(choice->bytes, text), choice->fits ? "" : " (over)");
}

static void print_why(FILE *to, const struct search *search) {
    const struct weir_planner_result *result = &search->result;
    fprintf(to, "\n%-22s %8s %8s %8s %8s %8s %8s %8s %8s  %12s\n", "a step of one worker", "step",
            "work", "recomp.", "bubble", "imbal.", "copies", "host", "share", "worst worker");
    print_parts(to, "chosen", result->winner);
    if (result->runner_up != NULL) print_parts(to, "runner-up", result->runner_up);
    if (result->plain != NULL) print_parts(to, "plain", result->plain);
}

/* Who repeats a run with other chunks, or groups, gets other bits. */
static void print_chunks(FILE *to, const struct search *search) {
    if (search_has_other_chunks(search))
        fprintf(to,
                "chunks    %u instead of %u: gradients round in another order, so results have "
                "other bits; --chunks %u keeps them\n",
                search_chunks(search, search->result.winner), search->cost_list[0].whole,
                search->cost_list[0].whole);
    if (!search->groups_kept)
        fprintf(to,
                "groups    %u instead of 1: gradients round in another order, so results have "
                "other bits than one replica's\n",
                search->groups);
}

static void print_tried(FILE *to, const struct search *search) {
    const char *separator = "";
    for (uint32_t i = 0; i < search->cost_count; i++, separator = ", ")
        fprintf(to, "%s%u", separator, search->cost_list[i].whole);
    fputs(search->cost_count == 1 && search->cost_list[0].whole == 1 ? " micro-batch, "
                                                                     : " micro-batches, ",
          to);
}

void search_print(FILE *to, const struct search *search, const struct pipe_options *options) {
    const struct weir_planner_result *result = &search->result;
    const struct weir_planner_choice *winner = result->winner;
    char limit[24];
    fprintf(to, "searched  %u step%s simulated, %u memory plan%s, %.2f s; costs %s\n",
            result->tries, weir__s(result->tries), result->asks, weir__s(result->asks),
            search->seconds, search->costs);
    uint32_t workers = winner->workers * search->replicas;
    fprintf(to, "for       %u worker%s, ", workers, weir__s(workers));
    if (search->replicas > 1) fprintf(to, "%u replicas, ", search->replicas);
    print_tried(to, search);
    fprintf(to, "%s\n",
            options->memory_limit == 0 ? "no memory limit"
                                       : plan_text_bytes(options->memory_limit, limit));
    print_front(to, search);
    print_why(to, search);
    fputc('\n', to);
    print_chunks(to, search);
    fprintf(to, "repeat    %s\n\n", search->repeat);
}

void search_print_choice(FILE *to, const struct search *search) {
    char bytes[24], step[32];
    fprintf(to, "plan      %s (predicted %s, %s; costs %s", search->repeat,
            time_text(search->result.winner->step, step),
            plan_text_bytes(search->result.winner->bytes, bytes), search->costs);
    if (search->second[0] != '\0')
        fprintf(to, "; runner-up %s: %s", search->second, time_text(search->second_step, step));
    fputs(")\n", to);
    print_chunks(to, search);
}

/* ---- for programs ---- */

static json_t *choice_json(const struct search *search, const struct weir_planner_choice *choice) {
    json_t *balance = json_array(), *modes = json_array();
    for (uint32_t s = 0; s < choice->stages; s++) {
        json_array_append_new(balance, json_integer(choice->balance[s]));
        json_array_append_new(modes, json_string(weir_checkpoint_name(choice->checkpoint[s])));
    }
    return json_pack("{s:s, s:I, s:I, s:I, s:o, s:o, s:s, s:f, s:I, s:b}", "schedule",
                     choice->schedule, "micro_batches", (json_int_t)search_chunks(search, choice),
                     "stages", (json_int_t)choice->stages, "workers",
                     (json_int_t)(choice->workers * search->replicas), "balance", balance,
                     "checkpoint", modes, "recompute", choice->recompute_late ? "late" : "early",
                     "step", choice->step, "bytes", (json_int_t)choice->bytes, "fits",
                     (int)choice->fits);
}

static json_t *why_json(const struct search *search, const struct weir_planner_choice *choice) {
    if (choice == NULL) return json_null();
    const struct weir_planner_parts *parts = &choice->parts;
    json_t *object = choice_json(search, choice);
    json_object_set_new(object, "parts",
                        json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "work", parts->work,
                                  "recompute", parts->recompute, "bubble", parts->bubble,
                                  "imbalance", parts->imbalance, "copies", parts->copies, "host",
                                  parts->host, "shared", parts->shared));
    json_object_set_new(object, "bubble", json_real(choice->bubble));
    json_object_set_new(object, "moved_bytes", json_integer((json_int_t)choice->moved_bytes));
    return object;
}

int search_json(const struct search *search, json_t *root) {
    const struct weir_planner_result *result = &search->result;
    json_t *front = json_array();
    for (uint32_t i = 0; i < result->front_count; i++)
        json_array_append_new(front, choice_json(search, &result->front[i]));
    json_t *why =
        json_pack("{s:o, s:o, s:o}", "chosen", why_json(search, result->winner), "runner_up",
                  why_json(search, result->runner_up), "plain", why_json(search, result->plain));
    int failed =
        json_object_set_new(root, "front", front) | json_object_set_new(root, "why", why) |
        json_object_set_new(root, "options", json_text_string(search->repeat)) |
        json_object_set_new(root, "costs", json_text_string(search->costs)) |
        json_object_set_new(root, "replicas", json_integer(search->replicas)) |
        json_object_set_new(root, "micro_batches_asked", json_integer(search->cost_list[0].whole)) |
        json_object_set_new(root, "smallest_limit",
                            json_integer((json_int_t)result->smallest_limit));
    return failed != 0 ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK;
}
