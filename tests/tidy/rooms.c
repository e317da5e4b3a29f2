/* SPDX-License-Identifier: MIT */
/* Rooms are folders. One that includes from another knows it; who knows whom must have no cycle. */
#include "tidy.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 256 };

/* One include across a border. */
struct door {
    const struct file *file;
    int line;
    uint32_t from, to; /* rooms */
    const char *header;
};

struct house {
    const struct tree *tree;
    char (*rooms)[PATH_BYTES];
    struct door *doors;
    size_t room_count, door_count, door_capacity;
};

static void *grown(void *memory, size_t count, size_t size) {
    void *more = realloc(memory, count * size);
    if (more) return more;
    fprintf(stderr, "tidy: out of memory\n");
    exit(2);
}

/* Of the folder that `path` lies in; a new one is added. */
static uint32_t room_of(struct house *house, const char *path) {
    const char *slash = strrchr(path, '/');
    char name[PATH_BYTES];
    snprintf(name, sizeof name, "%.*s", slash ? (int)(slash - path) : 0, path);
    for (size_t i = 0; i < house->room_count; i++)
        if (strcmp(house->rooms[i], name) == 0) return (uint32_t)i;
    house->rooms = grown(house->rooms, house->room_count + 1, sizeof *house->rooms);
    snprintf(house->rooms[house->room_count], PATH_BYTES, "%s", name);
    return (uint32_t)house->room_count++;
}

static const struct file *find(const struct tree *tree, const char *folder, size_t length,
                               const char *name) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%.*s%s%s", (int)length, folder, length > 0 ? "/" : "", name);
    for (size_t i = 0; i < tree->count; i++)
        if (strcmp(tree->files[i].path, path) == 0) return &tree->files[i];
    return NULL;
}

/* The file that the compiler takes for the name: beside the file, then below the folders that
 * build.zig gives it. NULL: a system's, or one that goes up from here. */
static const struct file *resolve(const struct tree *tree, const struct file *file,
                                  const char *name) {
    static const char *const roots[] = {"src", "tools", "tests", "kernels", "tests/fake_cuda"};
    const char *slash = strrchr(file->path, '/');
    const struct file *found =
        find(tree, file->path, slash ? (size_t)(slash - file->path) : 0, name);
    for (size_t i = 0; !found && i < sizeof roots / sizeof roots[0]; i++)
        found = find(tree, roots[i], strlen(roots[i]), name);
    return found;
}

static void add_door(struct house *house, const struct door *door) {
    if (house->door_count == house->door_capacity) {
        house->door_capacity = house->door_capacity ? 2 * house->door_capacity : 256;
        house->doors = grown(house->doors, house->door_capacity, sizeof *house->doors);
    }
    house->doors[house->door_count++] = *door;
}

static void add_doors(struct house *house, const struct file *file) {
    static const char directive[] = "#include \"";
    int line = 1;
    for (const char *at = file->text; *at; line++) {
        size_t length = strcspn(at, "\n"), blanks = strspn(at, " ");
        if (strncmp(at + blanks, directive, strlen(directive)) == 0) {
            const char *begin = at + blanks + strlen(directive);
            char name[PATH_BYTES];
            snprintf(name, sizeof name, "%.*s", (int)strcspn(begin, "\"\n"), begin);
            const struct file *header = resolve(house->tree, file, name);
            struct door door = {.file = file, .line = line};
            door.from = room_of(house, file->path);
            door.to = header ? room_of(house, header->path) : door.from;
            door.header = header ? header->path : NULL;
            if (door.from != door.to) add_door(house, &door);
        }
        at += length + (at[length] == '\n');
    }
}

/* Rooms from `from` on, breadth first: came[room] is the one before it, or UINT32_MAX. Returns how
 * many steps `to` is away, 0: it is out of reach. */
static uint32_t walk(const struct house *house, uint32_t from, uint32_t to, uint32_t *came,
                     uint32_t *queue) {
    uint32_t first = 0, count = 1, steps = 1;
    for (size_t i = 0; i < house->room_count; i++) came[i] = UINT32_MAX;
    queue[0] = from;
    came[from] = from;
    for (; first < count && came[to] == UINT32_MAX; first++)
        for (size_t d = 0; d < house->door_count; d++) {
            const struct door *door = &house->doors[d];
            if (door->from != queue[first] || came[door->to] != UINT32_MAX) continue;
            came[door->to] = queue[first];
            queue[count++] = door->to;
        }
    if (came[to] == UINT32_MAX) return 0;
    for (uint32_t room = to; room != from; room = came[room]) steps++;
    return steps;
}

static void report_doors(const struct house *house, uint32_t from, uint32_t to) {
    for (size_t d = 0; d < house->door_count; d++) {
        const struct door *door = &house->doors[d];
        if (door->from == from && door->to == to)
            tidy_report(door->file->path, door->line,
                        "%s knows %s by this include of %s, in a "
                        "cycle of folders",
                        house->rooms[from], house->rooms[to], door->header);
    }
}

/* The shortest cycle, with all includes that make it. */
static void report_cycle(const struct house *house) {
    uint32_t *came = grown(NULL, house->room_count + 1, sizeof *came);
    uint32_t *queue = grown(NULL, house->room_count + 1, sizeof *queue);
    const struct door *best = NULL;
    uint32_t least = UINT32_MAX;
    for (size_t d = 0; d < house->door_count; d++) {
        const struct door *door = &house->doors[d];
        uint32_t steps = walk(house, door->to, door->from, came, queue);
        if (steps == 0 || steps >= least) continue;
        least = steps;
        best = door;
    }
    if (best) {
        walk(house, best->to, best->from, came, queue);
        report_doors(house, best->from, best->to);
        for (uint32_t room = best->from; room != best->to; room = came[room])
            report_doors(house, came[room], room);
    }
    free(came);
    free(queue);
}

void tidy_check_rooms(const struct tree *tree) {
    struct house house = {.tree = tree};
    for (size_t i = 0; i < tree->count; i++)
        if (tidy_is_c(tree->files[i].path)) add_doors(&house, &tree->files[i]);
    report_cycle(&house);
    free(house.rooms);
    free(house.doors);
}
