/* SPDX-License-Identifier: MIT */
/*
 * Portals: small state machines that hold a value from its stash to its last use, and its gradient
 * for one use. They carry no lock: who may touch one is decided by the action table, and a use out
 * of turn is an error that names the skip, not a wrong number.
 */
#include "skip/skip.h"

#include <inttypes.h>

static const char *name_of(const struct weir__portal *portal) {
    return portal->name != NULL ? portal->name : "";
}

void weir__portal_reset(struct weir__portal *portal, const char *name, uint32_t life_full) {
    assert(portal != NULL);
    *portal = (struct weir__portal){.name = name, .life_full = life_full};
}

int weir__portal_put(struct weir__portal *portal, void *value, struct weir_error *error) {
    assert(portal->state == WEIR__PORTAL_PUT || portal->life == 0);
    (void)error;
    if (portal->state == WEIR__PORTAL_NEW) {
        portal->state = WEIR__PORTAL_PUT;
        portal->value = value;
        portal->life = portal->life_full;
    }
    return WEIR_OK;
}

int weir__portal_use(struct weir__portal *portal, void **value, struct weir_error *error) {
    if (portal->state == WEIR__PORTAL_NEW) {
        return weir__fail(error, WEIR_ERR_PORTAL, "skip '%.128s' is used before it is stashed",
                          name_of(portal));
    }
    if (portal->life == 0) {
        return weir__fail(error, WEIR_ERR_PORTAL,
                          "skip '%.128s' is used once more after its %" PRIu32 " use%s",
                          name_of(portal), portal->life_full, weir__s(portal->life_full));
    }
    assert(portal->life <= portal->life_full);
    if (*value != portal->value) *value = portal->value;
    portal->life--;
    if (portal->life == 0) {
        portal->value = NULL; /* its memory may hold something else from now on */
    }
    return WEIR_OK;
}

int weir__portal_put_gradient(struct weir__portal *portal, void *gradient,
                              struct weir_error *error) {
    assert(portal->gradient_state <= WEIR__GRADIENT_USED);
    if (portal->gradient_state != WEIR__GRADIENT_NONE) {
        return weir__fail(error, WEIR_ERR_PORTAL, "the gradient of skip '%.128s' is put twice",
                          name_of(portal));
    }
    portal->gradient_state = WEIR__GRADIENT_PUT;
    portal->gradient = gradient;
    return WEIR_OK;
}

int weir__portal_use_gradient(struct weir__portal *portal, void **gradient,
                              struct weir_error *error) {
    assert(gradient != NULL);
    if (portal->gradient_state != WEIR__GRADIENT_PUT) {
        bool used = portal->gradient_state == WEIR__GRADIENT_USED;
        return weir__fail(error, WEIR_ERR_PORTAL, "the gradient of skip '%.128s' is used %s",
                          name_of(portal), used ? "twice" : "before it is put");
    }
    portal->gradient_state = WEIR__GRADIENT_USED;
    *gradient = portal->gradient;
    portal->gradient = NULL;
    return WEIR_OK;
}
