/* SPDX-License-Identifier: MIT */
/*
 * Malformed tables: texts that are no table (WEIR_ERR_FORMAT) and tables that cannot be executed
 * (WEIR_ERR_SCHEDULE).
 */
#include "io/malformed.h"

#include "schedule/action.h"

#include <stdio.h>
#include <string.h>

#define BAD(what, part, text) MALFORMED(what, WEIR_ERR_FORMAT, part, text, 0)
#define WRONG(what, part, text) MALFORMED(what, WEIR_ERR_SCHEDULE, part, text, 0)

#define STAGE "does not begin with a stage of 0 to 65534, as in 2F0"
#define KIND "has no kind that is known: F, R, B, I, W or U, as in 2F0"
#define MICRO_BATCH "needs a micro-batch of 0 to 2147483647, as in 2F0"
#define END "goes on where it should end, as in 2F0 or 2U"
#define OVERLAP "is no overlap, which reads (0F7;7B3)OVERLAP_F_B"
#define NOTHING "the table has no action of a micro-batch"

#define TEXT_64 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

static const struct malformed list[] = {
    /* no table */
    BAD("an empty file", NOTHING, ""),
    BAD("spaces and line ends", NOTHING, " \t\r\n\r\n \n"),
    BAD("commas", NOTHING, ",,,\n,,\n"),
    BAD("a byte order mark", NOTHING, "\357\273\277"),
    BAD("updates alone", NOTHING, "0U\n1U\n"),
    BAD("communication alone", NOTHING, "0SEND_F0\n1RECV_F0\n"),
    BAD("empty overlaps", NOTHING, "()OVERLAP_F_B\n(;;)OVERLAP_F_B\n"),

    /* stages */
    BAD("no stage", "line 1, cell 1: 'F0' " STAGE, "F0\n"),
    BAD("a negative stage", "line 1, cell 1: '-1F0' " STAGE, "-1F0\n"),
    BAD("a stage with a plus", "'+1F0' " STAGE, "+1F0\n"),
    BAD("a stage beyond the last", "'65535F0' " STAGE, "65535F0\n"),
    BAD("a stage that wraps at 16 bits", "'65536F0' " STAGE, "65536F0\n"),
    BAD("a stage that wraps at 32 bits", "'4294967296F0' " STAGE, "4294967296F0\n"),
    BAD("a stage that wraps at 64 bits", "'18446744073709551616F0' " STAGE,
        "18446744073709551616F0\n"),
    BAD("a stage of forty digits", STAGE, "1000000000000000000000000000000000000001F0\n"),
    BAD("a stage with a fraction", "'0.5F0' " KIND, "0.5F0\n"),
    BAD("a stage with an exponent", "'1e999F0' " KIND, "1e999F0\n"),
    BAD("a hexadecimal stage", "'0x1F0' " KIND, "0x1F0\n"),
    BAD("digits of another script", STAGE, "\331\240F0\n"),
    BAD("a comment", "'# by hand' " STAGE, "# by hand\n0F0,0B0\n"),
    BAD("a heading", "line 1, cell 2: 'rank 1' " STAGE, "0F0,rank 1\n"),
    BAD("single quotes", "''0F0'' " STAGE, "'0F0','0B0'\n"),
    BAD("a byte order mark in the middle", "line 2, cell 1: '?\?\?1F0' " STAGE,
        "0F0,0B0\n\357\273\2771F0,1B0\n"),

    /* kinds */
    BAD("no kind", "line 1, cell 2: '0' " KIND, "0F0,0\n"),
    BAD("a small letter", "'0f0' " KIND, "0f0\n"),
    BAD("an unknown kind", "'0Q0' " KIND, "0Q0\n"),
    BAD("a kind that no table has", "'0N' " KIND, "0N\n"),
    BAD("two kinds", "'0FB0' " KIND, "0FB0\n"),
    BAD("a kind behind a space", "'0 F0' " KIND, "0 F0\n"),
    BAD("a word with WAIT_ alone", "'0WAIT_0' " KIND, "0WAIT_0\n"),
    BAD("a word cut short", "'0SEND_0' " KIND, "0SEND_0\n"),
    BAD("a word that goes on", "'0SEND_FX0' " KIND, "0SEND_FX0\n"),
    BAD("semicolons for commas", "'0F0;0B0' " END, "0F0;0B0\n"),
    BAD("JSON", "'[[\"0F0\"' " STAGE, "[[\"0F0\",\"0B0\"]]\n"),
    BAD("a zero byte", "line 1, cell 1: '0?F0' " KIND, "0\0F0\n"),
    BAD("a zero byte alone", "line 1, cell 2: '?' " STAGE, "0F0,\0,0B0\n"),
    BAD("UTF-16", "line 1, cell 1: '0?F?0?' " KIND, "0\0F\0000\0\n\0"),
    BAD("bytes of 255", "'?\?' " STAGE, "0F0,\377\377\n"),
    BAD("a line end of another system", "'0F0?0B0' " END, "0F0\0130B0\n"),
    BAD("a long cell, cut in the message", "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' " STAGE,
        TEXT_64 TEXT_64 TEXT_64 TEXT_64 TEXT_64 TEXT_64 TEXT_64 TEXT_64 "\n"),

    /* micro-batches */
    BAD("no micro-batch", "'0F' " MICRO_BATCH, "0F\n"),
    BAD("a negative micro-batch", "'0F-1' " MICRO_BATCH, "0F-1\n"),
    BAD("a micro-batch behind a space", "'0F 0' " MICRO_BATCH, "0F 0\n"),
    BAD("a micro-batch of 2^31", "'0F2147483648' " MICRO_BATCH, "0F2147483648\n"),
    BAD("a micro-batch that wraps at 32 bits", "'0F4294967296' " MICRO_BATCH, "0F4294967296\n"),
    BAD("a micro-batch that wraps at 64 bits", "'0F18446744073709551616' " MICRO_BATCH,
        "0F18446744073709551616\n"),
    BAD("a micro-batch with a fraction", "'0F1.5' " END, "0F1.5\n"),
    BAD("a micro-batch with an exponent", "'0F1e999' " END, "0F1e999\n"),
    BAD("two actions in a cell", "'0F0 0B0' " END, "0F0 0B0\n"),
    BAD("an update of a micro-batch", "'0U1' " END, "0U1\n"),
    BAD("communication that goes on", "'0SEND_F0x' does not end with a micro-batch, as in 2SEND_F0",
        "0SEND_F0x\n"),
    BAD("communication of a negative micro-batch", "'0SEND_F-1' does not end with a micro-batch",
        "0SEND_F-1\n"),

    /* overlaps and quotes */
    BAD("an overlap that does not end", "'(0F0;0B0' " OVERLAP, "(0F0;0B0\n"),
    BAD("an overlap of another name", "'(0F0;0B0)OVERLAP' " OVERLAP, "(0F0;0B0)OVERLAP\n"),
    BAD("an overlap without a name", "'(0F0;0B0)' " OVERLAP, "(0F0;0B0)\n"),
    BAD("an overlap with commas", "line 1, cell 1: '(0F0' " OVERLAP, "(0F0,0B0)OVERLAP_F_B\n"),
    BAD("an overlap in an overlap", OVERLAP, "((0F0)OVERLAP_F_B)OVERLAP_F_B\n"),
    BAD("brackets a hundred deep", OVERLAP,
        "(((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((("
        "((((((((((((((0F0))))))))))))))OVERLAP_F_B\n"),
    BAD("a bad part of an overlap", "line 1, cell 1: '0Z0' " KIND, "(0F0;0Z0)OVERLAP_F_B\n"),
    BAD("a quote that does not end", "line 1, cell 2: '\"0B0' has no closing quote", "0F0,\"0B0\n"),
    BAD("a quote alone", "'\"' has no closing quote", "\"\n"),
    BAD("text behind a quote", "'x' stands behind a closing quote", "\"0F0\"x,0B0\n"),
    BAD("a quote in a quote", "'\"\"' stands behind a closing quote", "\"0F0\"\"\",0B0\n"),
    BAD("a comma in a quote", "'0F0,0B0' " END, "\"0F0,0B0\"\n"),
    BAD("a line end in a quote", "line 1, cell 1: '\"0F0' has no closing quote", "\"0F0\n0B0\"\n"),

    /* tables that cannot be executed */
    WRONG("an action twice", "0F0 stands twice: worker 0 and worker 0", "0F0,0F0,0B0\n"),
    WRONG("an action twice in two rows", "stage 0 stands in the lines of worker 0 and worker 1",
          "0F0,0B0\n0F0,0B0\n"),
    WRONG("an update twice", "0U stands twice", "0F0,0B0,0U,0U\n"),
    WRONG("no forward", "0F0 is missing", "0B0\n"),
    WRONG("no backward", "0B0 is missing", "0F0\n"),
    WRONG("half a backward", "0W0 is missing: 0I0 does half of a backward", "0F0,0I0\n"),
    WRONG("the other half of a backward", "0I0 is missing: 0W0 does half", "0F0,0W0\n"),
    WRONG("a backward and its halves", "0B0 and 0I0 do the same work", "0F0,0B0,0I0,0W0\n"),
    WRONG("a stage left out", "stage 1 has no action", "0F0,0B0\n2F0,2B0\n"),
    WRONG("a micro-batch left out", "0F1 is missing", "0F0,0F2,0B0,0B2\n"),
    WRONG("a backward before its forward", "0B0 stands before 0F0", "0B0,0F0\n"),
    WRONG("a weight before its input", "0W0 stands before 0I0", "0F0,0W0,0I0\n"),
    WRONG("a recompute behind its backward", "0B0 stands before 0R0", "0F0,0B0,0R0\n"),
    WRONG("work behind an update", "0F1 stands behind 0U: updates end a line",
          "0F0,0B0,0U,0F1,0B1\n"),
    WRONG("a row of communication alone", "worker 1 has nothing to do", "0F0,0B0\n1SEND_F0\n"),
    WRONG("stages on a worker in the wrong order", "deadlock: worker 0 waits at 1F0 for 0F0",
          "1F0,0F0,0B0,1B0\n"),
    WRONG("two workers that wait for each other", "deadlock: worker 0 waits at",
          "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n"),
    WRONG("far too few actions for its numbers", "need at least", "65534F2147483647\n"),
    WRONG("far too few actions for its stages", "need at least", "0F0,0B0\n65534F9,65534B9\n"),
};

static int judge(const struct weir__io *io, const struct weir__bytes *text,
                 struct weir_faults *faults) {
    struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
    struct weir_table *table = NULL;
    options.allocator = io->allocator;
    options.stages = options.micro_batches = 0;
    options.checkpoint = WEIR_CHECKPOINT_NEVER;
    int status = weir_table_parse(&options, text->data, text->count, faults, NULL, &table);
    if (!status) status = weir_table_check(table, io->allocator, faults);
    weir_table_destroy(table);
    return status;
}

static int read(const struct weir__io *io, const char *path, char *message, size_t capacity) {
    struct weir_faults faults = {.allocator = io->allocator};
    struct weir__bytes text = {0};
    size_t used = 0;
    int status = weir__file_read(io, path, (size_t)1 << 28, &text);
    if (!status) status = judge(io, &text, &faults);
    EXPECT(faults.count > 0 || status == WEIR_OK || status == WEIR_ERR_OUT_OF_MEMORY);
    message[0] = 0;
    for (uint32_t i = 0; i < faults.kept && used < capacity; i++) {
        used += (size_t)snprintf(message + used, capacity - used, "%s\n", faults.lines[i]);
    }
    weir_faults_clean_up(&faults);
    weir__bytes_release(io->allocator, &text);
    return status;
}

const struct malformed_set malformed_csv = {"csv", list, sizeof list / sizeof list[0],
                                            NULL,  read, NULL};
