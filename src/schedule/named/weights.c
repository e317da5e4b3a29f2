/* SPDX-License-Identifier: MIT */
/*
 * Where the weight gradients go: a simulation in which every action takes one unit. In each unit
 * every worker takes its next F or I if it is ready, else a W that it owes, else nothing. Linear in
 * workers and units; since a stage's micro-batches run in ascending order, how many it has done is
 * all that needs to be known of it.
 */
#include "schedule/schedules.h"

/** One worker's place in its line. */
struct place {
    uint32_t next, end;     /**< of the order */
    uint32_t owed;          /**< no I before this has its W to come */
    uint32_t live, most;    /**< activations */
    uint32_t begin, length; /**< of the actions placed */
    bool ran;               /**< its last action was placed in this unit */
};

struct placing {
    const struct weir__table_builder *order;
    const struct weir_allocator *allocator;
    uint32_t workers, stages, most;
    uint32_t room;
    struct place *places;
    uint32_t *forwards, *inputs; /**< [stage]: done by now */
    struct weir_action *actions;
};

static void clean_up(struct placing *placing) {
    const struct weir_allocator *allocator = placing->allocator;
    weir__release(allocator, placing->actions, placing->room, sizeof *placing->actions);
    weir__release(allocator, placing->inputs, placing->stages, sizeof *placing->inputs);
    weir__release(allocator, placing->forwards, placing->stages, sizeof *placing->forwards);
    weir__release(allocator, placing->places, placing->workers, sizeof *placing->places);
}

/* Half of an order is I, each of which gets a W. */
static bool init(struct placing *placing) {
    const struct weir__table_builder *order = placing->order;
    assert(order->line_count == placing->workers);
    const struct weir_allocator *allocator = placing->allocator;
    placing->room = order->count + order->count / 2;
    placing->places = weir__acquire(allocator, placing->workers, sizeof *placing->places);
    placing->forwards = weir__acquire(allocator, placing->stages, sizeof *placing->forwards);
    placing->inputs = weir__acquire(allocator, placing->stages, sizeof *placing->inputs);
    placing->actions = weir__acquire(allocator, placing->room, sizeof *placing->actions);
    if (placing->places == NULL || placing->forwards == NULL || placing->inputs == NULL ||
        placing->actions == NULL)
        return false;
    for (uint32_t w = 0; w < placing->workers; w++) {
        uint32_t begin = order->lines[w];
        uint32_t end = w + 1 < placing->workers ? order->lines[w + 1] : order->count;
        bool turn = placing->stages > placing->workers && placing->stages - 1 - w == w;
        placing->places[w] = (struct place){.next = begin,
                                            .end = end,
                                            .owed = begin,
                                            .most = turn ? placing->most / 2 : placing->most,
                                            .begin = begin + begin / 2};
    }
    return true;
}

static bool is_ready(const struct placing *placing, const struct place *place) {
    assert(place->next <= place->end);
    if (place->next == place->end) return false;
    const struct weir_action *action = &placing->order->actions[place->next];
    uint32_t s = action->stage, i = action->micro_batch;
    if (action->kind == WEIR_KIND_F)
        return place->live < place->most && (s == 0 || placing->forwards[s - 1] > i);
    return placing->forwards[s] > i && (s + 1 == placing->stages || placing->inputs[s + 1] > i);
}

/* Moves `owed` to the oldest I without W; false if there is none. */
static bool owes_weight(const struct placing *placing, struct place *place) {
    assert(place->owed <= place->next);
    while (place->owed < place->next && placing->order->actions[place->owed].kind != WEIR_KIND_I)
        place->owed++;
    return place->owed < place->next;
}

static void take(struct placing *placing, struct place *place) {
    struct weir_action action;
    if (is_ready(placing, place)) {
        action = placing->order->actions[place->next++];
        place->live += action.kind == WEIR_KIND_F;
    } else if (owes_weight(placing, place)) {
        action = placing->order->actions[place->owed++];
        action.kind = WEIR_KIND_W;
        assert(place->live > 0);
        place->live--;
    } else {
        return;
    }
    assert(place->begin + place->length < placing->room);
    placing->actions[place->begin + place->length++] = action;
    place->ran = true;
}

/* What was taken in this unit is done now. Returns how many. */
static uint32_t finish(struct placing *placing) {
    uint32_t count = 0;
    for (uint32_t w = 0; w < placing->workers; w++) {
        struct place *place = &placing->places[w];
        if (place->ran) {
            const struct weir_action *last = &placing->actions[place->begin + place->length - 1];
            placing->forwards[last->stage] += last->kind == WEIR_KIND_F;
            placing->inputs[last->stage] += last->kind == WEIR_KIND_I;
            place->ran = false;
            count++;
        }
    }
    return count;
}

static void run(struct placing *placing) {
    for (uint32_t left = placing->room, count = 0; left > 0; left -= count) {
        for (uint32_t w = 0; w < placing->workers; w++) take(placing, &placing->places[w]);
        count = finish(placing);
        assert(count > 0 && count <= left);
        if (count == 0) return;
    }
}

static void emit(const struct weir_table_options *options, const struct placing *placing,
                 struct weir__table_builder *builder) {
    for (uint32_t w = 0; w < placing->workers; w++) {
        const struct place *place = &placing->places[w];
        weir__table_line(builder);
        for (uint32_t k = 0; k < place->length; k++) {
            const struct weir_action *action = &placing->actions[place->begin + k];
            uint32_t s = action->stage, i = action->micro_batch;
            if (action->kind == WEIR_KIND_I && weir__checkpointed(options, s, i))
                weir__table_add(builder, WEIR_KIND_R, s, i);
            weir__table_add(builder, (enum weir_kind)action->kind, s, i);
        }
        weir__add_updates_v(builder, options, w);
    }
}

void weir__fill_weights(const struct weir_table_options *options,
                        const struct weir__table_builder *order, uint32_t most,
                        struct weir__table_builder *builder) {
    struct placing placing = {.order = order,
                              .allocator = builder->allocator,
                              .workers = options->workers,
                              .stages = options->stages,
                              .most = most};
    assert(most > 0 && options->stages <= 2 * options->workers);
    if (order->failed || !init(&placing)) {
        builder->failed = true;
    } else {
        run(&placing);
        emit(options, &placing, builder);
    }
    clean_up(&placing);
}
