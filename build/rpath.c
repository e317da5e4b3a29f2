/* SPDX-License-Identifier: MIT */
/*
 * rpath PROGRAM...: makes each program's RUNPATH an RPATH, which its libraries use for theirs as
 * well. Zig's linker writes the former whatever it is told.
 */
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* How many there were in a dynamic section of `bytes` bytes. */
static int change_tags(unsigned char *section, size_t bytes) {
    int changed = 0;
    for (size_t at = 0; at + sizeof(Elf64_Dyn) <= bytes; at += sizeof(Elf64_Dyn)) {
        Elf64_Dyn entry;
        memcpy(&entry, section + at, sizeof entry);
        if (entry.d_tag != DT_RUNPATH) continue;
        entry.d_tag = DT_RPATH;
        memcpy(section + at, &entry, sizeof entry);
        changed++;
    }
    return changed;
}

/* -1: not an ELF file of 64 bits. */
static int change_file(unsigned char *file, size_t bytes) {
    Elf64_Ehdr header;
    int changed = 0;
    if (bytes < sizeof header || memcmp(file, ELFMAG, SELFMAG) != 0) return -1;
    memcpy(&header, file, sizeof header);
    if (header.e_ident[EI_CLASS] != ELFCLASS64) return -1;
    for (unsigned i = 0; i < header.e_phnum; i++) {
        Elf64_Phdr part;
        size_t at = header.e_phoff + (size_t)i * header.e_phentsize;
        if (at > bytes || bytes - at < sizeof part) return -1;
        memcpy(&part, file + at, sizeof part);
        if (part.p_type != PT_DYNAMIC) continue;
        if (part.p_offset > bytes || part.p_filesz > bytes - part.p_offset) return -1;
        changed += change_tags(file + part.p_offset, part.p_filesz);
    }
    return changed;
}

static int change_program(const char *path) {
    struct stat facts;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0 || fstat(file, &facts) != 0 || facts.st_size <= 0) return -1;
    size_t bytes = (size_t)facts.st_size;
    void *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped == MAP_FAILED) return -1;
    int changed = change_file(mapped, bytes);
    munmap(mapped, bytes);
    return changed;
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (change_program(argv[i]) == 1) continue;
        fprintf(stderr, "rpath: %s: cannot be read, or has no RUNPATH\n", argv[i]);
        return 1;
    }
    return 0;
}
