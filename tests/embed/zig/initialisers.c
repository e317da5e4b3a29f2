/* SPDX-License-Identifier: MIT */
/* What the initialisers are in C, for main.zig to compare with. */
#include "weir_net.h"

extern const struct weir_table_options initialiser_of_table_options;
const struct weir_table_options initialiser_of_table_options = WEIR_TABLE_OPTIONS_INIT;
extern const struct weir_pipe_options initialiser_of_pipe_options;
const struct weir_pipe_options initialiser_of_pipe_options = WEIR_PIPE_OPTIONS_INIT;
extern const struct weir_stage initialiser_of_stage;
const struct weir_stage initialiser_of_stage = WEIR_STAGE_INIT;
extern const struct weir_step initialiser_of_step;
const struct weir_step initialiser_of_step = WEIR_STEP_INIT;
extern const struct weir_net_options initialiser_of_net_options;
const struct weir_net_options initialiser_of_net_options = WEIR_NET_OPTIONS_INIT;
extern const struct weir_net_batch initialiser_of_net_batch;
const struct weir_net_batch initialiser_of_net_batch = WEIR_NET_BATCH_INIT;
