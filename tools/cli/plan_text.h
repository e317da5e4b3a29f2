/* SPDX-License-Identifier: MIT */
/** A memory plan and the pipeline's options, for people and for programs. */
#ifndef WEIR_TOOLS_PLAN_TEXT_H
#define WEIR_TOOLS_PLAN_TEXT_H

#include "cli/output.h"
#include "cli/pipe_options.h"

#include <jansson.h>
#include <stdio.h>

/** One column per device, each part to the byte; as many beside each other as the terminal allows,
 * here and below. */
void plan_text_print(const struct people *people, const struct weir_plan *plan);
/** A line per device: what is in use over the predicted step, full height being its total. */
void plan_text_print_curves(const struct people *people, const struct weir_plan *plan);
/** Receive slots per device, and what they are: one for each arrival, handed on, and the most
 * arrivals at once. */
void plan_text_print_receives(const struct people *people, const struct weir_plan *plan);
/** How many tensors come to each device from other memories, by what copies them; nothing where
 * none do. */
void plan_text_print_copies(const struct people *people, const struct weir_plan *plan);
/** Bytes of the host's memory that are pinned for each device; nothing where none are. */
void plan_text_print_pinned(const struct people *people, const struct weir_plan *plan);
/** "1.25 MiB" into text; returns text. */
const char *plan_text_bytes(uint64_t bytes, char text[24]);
/** `devices` of CLI.md, each with `receive_slots: {each, slots, most}`, `copies: {by_engine,
 * by_kernel, batched, launches}`, `pinned: {staging, hops, numbers}` and `memory: [[time, bytes]]`
 * in the units of struct weir_plan_curve; a new reference. */
json_t *plan_json_devices(const struct weir_plan *plan);
/** `pipeline`: the options that were chosen, by their names; a new reference. */
json_t *plan_json_pipeline(const struct pipe_options *options, const struct weir_net_options *net,
                           uint32_t workers);

#endif
