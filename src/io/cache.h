/* SPDX-License-Identifier: MIT */
/**
 * The folder of what is kept between runs because finding it takes time: roofs of a machine, plans
 * of cuDNN. Whatever lies there may be missing, cut or of somebody else: who reads it checks it,
 * and who cannot write it goes without.
 */
#ifndef WEIR_IO_CACHE_H
#define WEIR_IO_CACHE_H

enum { WEIR__CACHE_FOLDER_MAX = 3800 };

/** Names the folder, and makes it: the environment's WEIR_CACHE, else $XDG_CACHE_HOME/weir, else
 * $HOME/.cache/weir. "": there is none, or WEIR_CACHE is empty: nothing is to be kept. */
void weir__cache_find(char folder[WEIR__CACHE_FOLDER_MAX]);

#endif
