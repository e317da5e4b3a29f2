/* SPDX-License-Identifier: MIT */
/*
 * What the stages' callbacks (engine_stages.c) are made of: the formula, and a place for what they
 * find wrong.
 */
#ifndef WEIR_TESTS_ENGINE_FORMULA_H
#define WEIR_TESTS_ENGINE_FORMULA_H

#include "engine/engine_stages.h"

/* The task's work; NULL memory is not looked at. */
void engine_do_phase(struct engine_stage *stage, const struct weir_task *task);
void engine_measure_areas(struct engine_stage *stage, int64_t rows, struct weir_stage_bytes *bytes);
/* Where a consumed or produced tensor lies. */
const void *engine_consumed_data(const struct engine_port *port, const struct weir_task *task);
void *engine_produced_data(const struct engine_port *port, const struct weir_task *task);

/* A check on a worker's thread could not end the test: the model keeps the first fault, and
 * engine_expect_clean tells it. `task` NULL: at the stage's life. */
void engine_note(const struct engine_stage *stage, const struct weir_task *task, const char *format,
                 ...) __attribute__((format(printf, 3, 4)));

#endif
