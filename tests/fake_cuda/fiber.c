/* SPDX-License-Identifier: MIT */
/*
 * ucontext can do it on every machine, and the sanitizers that watch stacks know it; but it asks
 * the kernel for the signal mask each time, which was three quarters of what an emulated kernel
 * took. So on x86-64 it is done by hand: what is kept is the registers that a function must not
 * change, on the stack itself.
 */
#include "fiber.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define STACKS_ARE_WATCHED
#endif
#endif

#if defined(__x86_64__) && !defined(STACKS_ARE_WATCHED)

void weir_fake_fiber_switch(void **from, void *to);
__asm__(".pushsection .text\n"
        ".globl weir_fake_fiber_switch\n"
        ".hidden weir_fake_fiber_switch\n"
        ".type weir_fake_fiber_switch, @function\n"
        ".p2align 4\n"
        "weir_fake_fiber_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    retq\n"
        ".size weir_fake_fiber_switch, . - weir_fake_fiber_switch\n"
        ".popsection\n");

/* As if it had been left by a switch at the first instruction of `run`, which nobody called: the
 * stack is 8 beside a multiple of 16 there, as after a call. */
void fiber_begin(struct fiber_context *fiber, char *stack, size_t bytes, void (*run)(void)) {
    enum { RETURN = 6, SLOTS = 8 }; /* behind six registers; then what `run` would return to */
    uintptr_t slots[SLOTS] = {[RETURN] = (uintptr_t)run};
    char *top = stack + bytes / 16 * 16 - sizeof slots;
    memcpy(top, slots, sizeof slots);
    fiber->state = top;
}

void fiber_switch(struct fiber_context *from, struct fiber_context *to) {
    weir_fake_fiber_switch(&from->state, to->state);
}

#else

/* Contexts are kept for good, as the emulation's stacks are. */
static ucontext_t *context_of(struct fiber_context *fiber) {
    if (fiber->state == NULL) fiber->state = calloc(1, sizeof(ucontext_t));
    if (fiber->state == NULL) abort();
    return fiber->state;
}

void fiber_begin(struct fiber_context *fiber, char *stack, size_t bytes, void (*run)(void)) {
    ucontext_t *context = context_of(fiber);
    getcontext(context);
    context->uc_stack.ss_sp = stack;
    context->uc_stack.ss_size = bytes;
    context->uc_link = NULL;
    makecontext(context, run, 0);
}

void fiber_switch(struct fiber_context *from, struct fiber_context *to) {
    swapcontext(context_of(from), context_of(to));
}

#endif
