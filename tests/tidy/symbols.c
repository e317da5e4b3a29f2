/* SPDX-License-Identifier: MIT */
/*
 * Reads the archives' symbol tables: an archive is a row of ELF objects, each behind a 60-byte
 * header of text. Read here because a bare system has no nm.
 */
#include "tidy.h"

#include <ar.h>
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct symbol {
    const char *name; /* in the archive's bytes */
    bool defined;
};

struct archive {
    const char *path;
    char *bytes;
    size_t length;
    struct symbol *symbols; /* global ones */
    size_t count;
    size_t capacity;
};

/* ---- reading --------------------------------------------------------------------------------- */

static bool read_archive(struct archive *archive) {
    FILE *file = fopen(archive->path, "rb");
    if (!file) return false;
    bool good = fseek(file, 0, SEEK_END) == 0;
    long length = good ? ftell(file) : -1;
    good = length >= SARMAG && fseek(file, 0, SEEK_SET) == 0;
    archive->length = good ? (size_t)length : 0;
    archive->bytes = good ? malloc(archive->length) : NULL;
    good = archive->bytes && fread(archive->bytes, 1, archive->length, file) == archive->length;
    fclose(file);
    return good && memcmp(archive->bytes, ARMAG, SARMAG) == 0;
}

static bool add_symbol(struct archive *archive, const char *name, bool defined) {
    if (archive->count == archive->capacity) {
        archive->capacity = archive->capacity ? archive->capacity * 2 : 256;
        void *grown = realloc(archive->symbols, archive->capacity * sizeof *archive->symbols);
        if (!grown) return false;
        archive->symbols = grown;
    }
    archive->symbols[archive->count++] = (struct symbol){.name = name, .defined = defined};
    return true;
}

/* Members start at even offsets, ELF wants more: so tables are copied out. Returns what malloc
 * gave, or NULL if the table is not whole. */
static void *copy_table(const char *object, size_t bytes, size_t offset, size_t table_bytes) {
    if (offset > bytes || table_bytes > bytes - offset) return NULL;
    void *copy = malloc(table_bytes ? table_bytes : 1);
    if (copy) memcpy(copy, object + offset, table_bytes);
    return copy;
}

static bool read_symbols(struct archive *archive, const char *object, size_t bytes,
                         const Elf64_Shdr *symbols, const Elf64_Shdr *strings) {
    if (strings->sh_offset > bytes || strings->sh_size > bytes - strings->sh_offset) return false;
    Elf64_Sym *table = copy_table(object, bytes, symbols->sh_offset, symbols->sh_size);
    bool good = table != NULL;
    for (size_t i = 0; good && i < symbols->sh_size / sizeof *table; i++) {
        if (ELF64_ST_BIND(table[i].st_info) == STB_LOCAL) continue;
        good = table[i].st_name < strings->sh_size &&
               add_symbol(archive, object + strings->sh_offset + table[i].st_name,
                          table[i].st_shndx != SHN_UNDEF);
    }
    free(table);
    return good;
}

static bool read_object(struct archive *archive, const char *object, size_t bytes) {
    Elf64_Ehdr header;
    if (bytes < sizeof header) return false;
    memcpy(&header, object, sizeof header);
    if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) {
        return false;
    }
    size_t table_bytes = (size_t)header.e_shnum * sizeof(Elf64_Shdr);
    Elf64_Shdr *sections = copy_table(object, bytes, header.e_shoff, table_bytes);
    bool good = sections != NULL;
    for (size_t i = 0; good && i < header.e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB) continue;
        good = sections[i].sh_link < header.e_shnum &&
               read_symbols(archive, object, bytes, &sections[i], &sections[sections[i].sh_link]);
    }
    free(sections);
    return good;
}

/* Whether the member is an object, not the archive's own index ("/") or long names ("//"). */
static bool holds_object(const struct ar_hdr *header) {
    return !(header->ar_name[0] == '/' && (header->ar_name[1] == ' ' || header->ar_name[1] == '/'));
}

static bool load_archive(struct archive *archive) {
    if (!read_archive(archive)) return false;
    size_t at = SARMAG;
    while (at + sizeof(struct ar_hdr) <= archive->length) {
        struct ar_hdr header;
        memcpy(&header, archive->bytes + at, sizeof header);
        at += sizeof header;
        char digits[sizeof header.ar_size + 1] = {0};
        memcpy(digits, header.ar_size, sizeof header.ar_size);
        size_t bytes = strtoul(digits, NULL, 10);
        if (bytes > archive->length - at) return false;
        if (holds_object(&header) && !read_object(archive, archive->bytes + at, bytes))
            return false;
        at += bytes + bytes % 2;
    }
    return archive->count > 0;
}

/* ---- judging --------------------------------------------------------------------------------- */

static bool defines(const struct archive *archive, const char *name) {
    for (size_t i = 0; i < archive->count; i++) {
        if (archive->symbols[i].defined && strcmp(archive->symbols[i].name, name) == 0) return true;
    }
    return false;
}

/* In the C library, which this program itself is linked with, or beside it. */
static bool is_in_c_library(const char *name) {
    static const char *const libraries[] = {"libm.so.6", "libgcc_s.so.1"};
    if (dlsym(RTLD_DEFAULT, name)) return true;
    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; i++) {
        void *library = dlopen(libraries[i], RTLD_LAZY);
        if (library && dlsym(library, name)) return true;
    }
    return strcmp(name, "_GLOBAL_OFFSET_TABLE_") == 0;
}

/* `base` is the archive below this one, or NULL; `prefixes` end with NULL. */
static void judge(const struct archive *archive, const struct archive *base,
                  const char *const *prefixes) {
    for (size_t i = 0; i < archive->count; i++) {
        const char *name = archive->symbols[i].name;
        if (archive->symbols[i].defined) {
            if (!tidy_starts_with(name, "weir_")) {
                tidy_report(archive->path, 0, "global symbol %s does not begin with weir_", name);
            }
            continue;
        }
        bool known = defines(archive, name) || (base && defines(base, name));
        for (size_t p = 0; !known && prefixes[p]; p++) known = tidy_starts_with(name, prefixes[p]);
        if (!known && !is_in_c_library(name)) {
            tidy_report(archive->path, 0, "%s is undefined, in no library it may need", name);
        }
    }
}

static void free_archive(struct archive *archive) {
    free(archive->symbols);
    free(archive->bytes);
}

void tidy_check_symbols(const char *engine_path, const char *net_path) {
    static const char *const engine_prefixes[] = {"hwloc_", NULL};
    static const char *const net_prefixes[] = {"json_", NULL};
    struct archive engine = {.path = engine_path};
    struct archive net = {.path = net_path};
    if (!load_archive(&engine)) tidy_report(engine_path, 0, "not an archive of 64-bit ELF objects");
    if (!load_archive(&net)) tidy_report(net_path, 0, "not an archive of 64-bit ELF objects");
    judge(&engine, NULL, engine_prefixes);
    judge(&net, &engine, net_prefixes);
    free_archive(&engine);
    free_archive(&net);
}
