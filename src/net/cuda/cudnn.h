/* SPDX-License-Identifier: MIT */
/**
 * cuDNN's graph API as far as it is used, declared by ourselves and opened at run time, so that
 * nothing of CUDA is needed to build. The least version is 9.0, of which all numbers here are.
 *   cudnn.c               the library, handles, running
 *   cudnn_graph.c         graphs of descriptors
 *   cudnn_convolution.c   a convolution as one
 *   cudnn_plan.c          which engine computes it
 *   cudnn_cache.c         plans kept on disk
 * Attention by it is cudnn_attention.h's.
 */
#ifndef WEIR_NET_CUDA_CUDNN_H
#define WEIR_NET_CUDA_CUDNN_H

#include "io/cache.h"
#include "net/cuda/numerics.h"

/** By cuDNN's numbers. */
enum {
    WEIR__CUDNN_SUCCESS = 0,
    WEIR__CUDNN_NOT_SUPPORTED = 3000, /**< … 3999 */
    WEIR__CUDNN_INTERNAL_ERROR = 4000,
    WEIR__CUDNN_COMPILATION_FAILED = 4001, /**< of a plan that is compiled when it is made */
    WEIR__CUDNN_HOST_ALLOCATION_FAILED = 4003,
    WEIR__CUDNN_DEVICE_ALLOCATION_FAILED = 4004,
    /* cudnnDataType_t, cudnnConvolutionMode_t, cudnnBackendHeurMode_t */
    WEIR__CUDNN_DATA_FLOAT = 0,
    WEIR__CUDNN_DATA_INT32 = 4,
    WEIR__CUDNN_DATA_BFLOAT16 = 9,
    WEIR__CUDNN_DATA_BOOLEAN = 11,
    WEIR__CUDNN_CROSS_CORRELATION = 1,
    WEIR__CUDNN_HEUR_MODE_FALLBACK = 2,
    WEIR__CUDNN_HEUR_MODE_A = 3,
    /* cudnnBackendNumericalNote_t */
    WEIR__CUDNN_NOTE_TENSOR_CORE = 0,
    WEIR__CUDNN_NOTE_DOWN_CONVERT_INPUTS = 1,
    WEIR__CUDNN_NOTE_REDUCED_PRECISION_REDUCTION = 2,
    WEIR__CUDNN_NOTE_FFT = 3,
    WEIR__CUDNN_NOTE_NONDETERMINISTIC = 4,
    WEIR__CUDNN_NOTE_WINOGRAD_TILE_4X4 = 6,
    WEIR__CUDNN_NOTE_WINOGRAD_TILE_6X6 = 7,
    WEIR__CUDNN_NOTE_WINOGRAD_TILE_13X13 = 8,
    /* cudnnBackendKnobType_t */
    WEIR__CUDNN_KNOB_STAGES = 14,
    WEIR__CUDNN_KNOB_KERNEL_CFG = 24,
    WEIR__CUDNN_KNOB_TILE_CGA_M = 27,
    WEIR__CUDNN_KNOB_STREAM_K = 38, /**< this and the next since 9.7 */
    WEIR__CUDNN_KNOB_TILE_M = 40,
    WEIR__CUDNN_KNOB_TILE_N = 41,
    /* cudnnPointwiseMode_t */
    WEIR__CUDNN_POINTWISE_ADD = 0,
    WEIR__CUDNN_POINTWISE_MUL = 1,
    WEIR__CUDNN_POINTWISE_DIV = 6,
    WEIR__CUDNN_POINTWISE_SUB = 9,
    WEIR__CUDNN_POINTWISE_EXP = 13,
    WEIR__CUDNN_POINTWISE_LOG = 15,
    WEIR__CUDNN_POINTWISE_IDENTITY = 21,
    WEIR__CUDNN_POINTWISE_CMP_GE = 303,
    WEIR__CUDNN_POINTWISE_GEN_INDEX = 501,
    WEIR__CUDNN_POINTWISE_BINARY_SELECT = 601,
    /* cudnnReduceTensorOp_t */
    WEIR__CUDNN_REDUCE_ADD = 0,
    WEIR__CUDNN_REDUCE_MAX = 3
};

/** cudnnBackendAttributeType_t */
enum weir__cudnn_type {
    WEIR__CUDNN_TYPE_HANDLE = 0,
    WEIR__CUDNN_TYPE_DATA_TYPE = 1,
    WEIR__CUDNN_TYPE_BOOLEAN = 2,
    WEIR__CUDNN_TYPE_INT64 = 3,
    WEIR__CUDNN_TYPE_FLOAT = 4,
    WEIR__CUDNN_TYPE_VOID_PTR = 6,
    WEIR__CUDNN_TYPE_CONVOLUTION_MODE = 7,
    WEIR__CUDNN_TYPE_HEUR_MODE = 8,
    WEIR__CUDNN_TYPE_KNOB_TYPE = 9,
    WEIR__CUDNN_TYPE_NUMERICAL_NOTE = 11,
    WEIR__CUDNN_TYPE_POINTWISE_MODE = 14,
    WEIR__CUDNN_TYPE_DESCRIPTOR = 15,
    WEIR__CUDNN_TYPE_REDUCTION_OPERATOR = 18,
    WEIR__CUDNN_TYPE_CHAR = 24
};

/** cudnnBackendDescriptorType_t */
enum weir__cudnn_kind {
    WEIR__CUDNN_POINTWISE = 0,
    WEIR__CUDNN_CONVOLUTION = 1,
    WEIR__CUDNN_ENGINE = 2,
    WEIR__CUDNN_ENGINECFG = 3,
    WEIR__CUDNN_ENGINEHEUR = 4,
    WEIR__CUDNN_EXECUTION_PLAN = 5,
    WEIR__CUDNN_KNOB_CHOICE = 7,
    WEIR__CUDNN_OPERATION_FORWARD = 10,
    WEIR__CUDNN_OPERATION_BACKWARD_FILTER = 11,
    WEIR__CUDNN_OPERATION_BACKWARD_DATA = 12,
    WEIR__CUDNN_OPERATION_POINTWISE = 13,
    WEIR__CUDNN_OPERATIONGRAPH = 15,
    WEIR__CUDNN_VARIANT_PACK = 16,
    WEIR__CUDNN_TENSOR = 17,
    WEIR__CUDNN_MATMUL = 18,
    WEIR__CUDNN_OPERATION_MATMUL = 19,
    WEIR__CUDNN_REDUCTION = 21,
    WEIR__CUDNN_OPERATION_REDUCTION = 22,
    WEIR__CUDNN_OPERATION_RESHAPE = 31,
    WEIR__CUDNN_DEVICE = 38 /**< since 9.8, as are the attributes of it */
};

/** cudnnBackendAttributeName_t */
enum weir__cudnn_attribute {
    WEIR__CUDNN_POINTWISE_MODE = 0,
    WEIR__CUDNN_POINTWISE_MATH_PREC = 1,
    WEIR__CUDNN_POINTWISE_AXIS = 9,
    WEIR__CUDNN_CONVOLUTION_COMP_TYPE = 100,
    WEIR__CUDNN_CONVOLUTION_CONV_MODE = 101,
    WEIR__CUDNN_CONVOLUTION_DILATIONS = 102,
    WEIR__CUDNN_CONVOLUTION_FILTER_STRIDES = 103,
    WEIR__CUDNN_CONVOLUTION_POST_PADDINGS = 104,
    WEIR__CUDNN_CONVOLUTION_PRE_PADDINGS = 105,
    WEIR__CUDNN_CONVOLUTION_SPATIAL_DIMS = 106,
    WEIR__CUDNN_ENGINEHEUR_MODE = 200,
    WEIR__CUDNN_ENGINEHEUR_OPERATION_GRAPH = 201,
    WEIR__CUDNN_ENGINEHEUR_RESULTS = 202,
    WEIR__CUDNN_ENGINEHEUR_DEVICE = 204,
    WEIR__CUDNN_ENGINECFG_ENGINE = 300,
    WEIR__CUDNN_ENGINECFG_KNOB_CHOICES = 302,
    WEIR__CUDNN_EXECUTION_PLAN_HANDLE = 400,
    WEIR__CUDNN_EXECUTION_PLAN_ENGINE_CONFIG = 401,
    WEIR__CUDNN_EXECUTION_PLAN_WORKSPACE_SIZE = 402,
    WEIR__CUDNN_EXECUTION_PLAN_JSON_REPRESENTATION = 405,
    WEIR__CUDNN_EXECUTION_PLAN_DEVICE = 407,
    WEIR__CUDNN_KNOB_CHOICE_KNOB_TYPE = 600,
    WEIR__CUDNN_KNOB_CHOICE_KNOB_VALUE = 601,
    WEIR__CUDNN_FORWARD_ALPHA = 700,
    WEIR__CUDNN_FORWARD_BETA = 701,
    WEIR__CUDNN_FORWARD_CONV_DESC = 702,
    WEIR__CUDNN_FORWARD_W = 703,
    WEIR__CUDNN_FORWARD_X = 704,
    WEIR__CUDNN_FORWARD_Y = 705,
    WEIR__CUDNN_BWD_DATA_ALPHA = 706,
    WEIR__CUDNN_BWD_DATA_BETA = 707,
    WEIR__CUDNN_BWD_DATA_CONV_DESC = 708,
    WEIR__CUDNN_BWD_DATA_W = 709,
    WEIR__CUDNN_BWD_DATA_DX = 710,
    WEIR__CUDNN_BWD_DATA_DY = 711,
    WEIR__CUDNN_BWD_FILTER_ALPHA = 712,
    WEIR__CUDNN_BWD_FILTER_BETA = 713,
    WEIR__CUDNN_BWD_FILTER_CONV_DESC = 714,
    WEIR__CUDNN_BWD_FILTER_DW = 715,
    WEIR__CUDNN_BWD_FILTER_X = 716,
    WEIR__CUDNN_BWD_FILTER_DY = 717,
    WEIR__CUDNN_OPERATION_POINTWISE_DESC = 750,
    WEIR__CUDNN_OPERATION_POINTWISE_X = 751,
    WEIR__CUDNN_OPERATION_POINTWISE_B = 752,
    WEIR__CUDNN_OPERATION_POINTWISE_Y = 753,
    WEIR__CUDNN_OPERATION_POINTWISE_T = 758,
    WEIR__CUDNN_OPERATIONGRAPH_HANDLE = 800,
    WEIR__CUDNN_OPERATIONGRAPH_OPS = 801,
    WEIR__CUDNN_TENSOR_BYTE_ALIGNMENT = 900,
    WEIR__CUDNN_TENSOR_DATA_TYPE = 901,
    WEIR__CUDNN_TENSOR_DIMENSIONS = 902,
    WEIR__CUDNN_TENSOR_STRIDES = 903,
    WEIR__CUDNN_TENSOR_UNIQUE_ID = 906,
    WEIR__CUDNN_TENSOR_IS_VIRTUAL = 907,
    WEIR__CUDNN_TENSOR_IS_BY_VALUE = 908,
    WEIR__CUDNN_VARIANT_PACK_UNIQUE_IDS = 1000,
    WEIR__CUDNN_VARIANT_PACK_DATA_POINTERS = 1001,
    WEIR__CUDNN_VARIANT_PACK_WORKSPACE = 1003,
    WEIR__CUDNN_ENGINE_OPERATION_GRAPH = 1300,
    WEIR__CUDNN_ENGINE_GLOBAL_INDEX = 1301,
    WEIR__CUDNN_ENGINE_NUMERICAL_NOTE = 1303,
    WEIR__CUDNN_ENGINE_DEVICE = 1307,
    WEIR__CUDNN_MATMUL_COMP_TYPE = 1500,
    WEIR__CUDNN_OPERATION_MATMUL_A = 1520,
    WEIR__CUDNN_OPERATION_MATMUL_B = 1521,
    WEIR__CUDNN_OPERATION_MATMUL_C = 1522,
    WEIR__CUDNN_OPERATION_MATMUL_DESC = 1523,
    WEIR__CUDNN_REDUCTION_OPERATOR = 1600,
    WEIR__CUDNN_REDUCTION_COMP_TYPE = 1601,
    WEIR__CUDNN_OPERATION_REDUCTION_X = 1610,
    WEIR__CUDNN_OPERATION_REDUCTION_Y = 1611,
    WEIR__CUDNN_OPERATION_REDUCTION_DESC = 1612,
    WEIR__CUDNN_OPERATION_RESHAPE_X = 2200,
    WEIR__CUDNN_OPERATION_RESHAPE_Y = 2201,
    WEIR__CUDNN_DEVICE_JSON_REPRESENTATION = 2702
};

/** Every function that is used: X(member, symbol, parameters). All return a cudnnStatus_t. */
#define WEIR__CUDNN_CALL_MAP(X)                                                                    \
    X(create, cudnnCreate, (void **handle))                                                        \
    X(destroy, cudnnDestroy, (void *handle))                                                       \
    X(set_stream, cudnnSetStream, (void *handle, struct CUstream_st *stream))                      \
    X(descriptor_create, cudnnBackendCreateDescriptor, (int kind, void **descriptor))              \
    X(descriptor_destroy, cudnnBackendDestroyDescriptor, (void *descriptor))                       \
    X(finalize, cudnnBackendFinalize, (void *descriptor))                                          \
    X(set, cudnnBackendSetAttribute,                                                               \
      (void *descriptor, int attribute, int type, int64_t count, const void *elements))            \
    X(get, cudnnBackendGetAttribute,                                                               \
      (void *descriptor, int attribute, int type, int64_t wanted, int64_t *count, void *elements)) \
    X(execute, cudnnBackendExecute, (void *handle, void *plan, void *pack))

enum { WEIR__CUDNN_STREAMS_MAX = 64, WEIR__CUDNN_DROPPED_MAX = 64 };

/** A handle works on one stream. */
struct weir__cudnn_stream {
    struct CUstream_st *stream;
    void *handle;
    uint32_t plans; /**< that use it; 0: free */
};

struct weir__cudnn {
    void *library;
    struct weir__cuda_device *device;
    pthread_mutex_t lock; /**< of `streams` */
    struct weir__cudnn_stream streams[WEIR__CUDNN_STREAMS_MAX];
    /** A descriptor of a GPU that is not here: plans are made for it, without a handle, to be
     * looked at; NULL: for the handle's. The owner's. */
    void *described;
    int capability;     /**< 90: 9.0 */
    char gpu[160];      /**< what a plan fits, but for the shape … */
    char versions[128]; /**< … and the driver's, the library's and its compiler's versions */
    char folder[WEIR__CACHE_FOLDER_MAX]; /**< of the plans on disk; "": none are kept */
    /** Of shapes and engines that are no more used (weir__cudnn_drop): hashes, from the first on;
     * 0: free. Any thread. */
    _Atomic uint64_t dropped[WEIR__CUDNN_DROPPED_MAX];
    _Atomic bool unproven; /**< some are not on disk yet: no plan is written either. Any thread. */
    size_t (*get_version)(void);
    size_t (*get_cuda_version)(void);
    const char *(*get_error_string)(int status);
#define WEIR__CUDNN_MEMBER(member, symbol, parameters) int(*member) parameters;
    WEIR__CUDNN_CALL_MAP(WEIR__CUDNN_MEMBER)
#undef WEIR__CUDNN_MEMBER
};

/** The table's calls (numerics.h). */
int weir__cudnn_open(struct weir__cuda_device *device, void **convolutions,
                     struct weir__cuda_failure *failure, struct weir_error *error);
void weir__cudnn_close(void *convolutions);
int weir__cudnn_convolution_new(void *convolutions,
                                const struct weir__cuda_convolution *convolution,
                                struct CUstream_st *stream, void **plan,
                                struct weir__cuda_failure *failure);
void weir__cudnn_convolution_destroy(void *convolutions, void *plan);
int weir__cudnn_convolution_next(void *convolutions, void *plan,
                                 struct weir__cuda_failure *failure);
void weir__cudnn_convolution_tell(const void *plan, char *text, size_t capacity);
int weir__cudnn_convolution_run(void *convolutions, const void *plan,
                                const struct weir__cuda_convolution_call *call,
                                struct weir__cuda_failure *failure);

int weir__cudnn_attention_new(void *convolutions, const struct weir__cuda_attend *attend,
                              struct CUstream_st *stream, void **plan,
                              struct weir__cuda_failure *failure);
void weir__cudnn_attention_destroy(void *convolutions, void *plan);
int weir__cudnn_attention_next(void *convolutions, void *plan, struct weir__cuda_failure *failure);
void weir__cudnn_attention_tell(const void *plan, char *text, size_t capacity);
int weir__cudnn_attention_run(void *convolutions, const void *plan,
                              const struct weir__cuda_attend_call *call,
                              struct weir__cuda_failure *failure);

/** The stream's handle, made if need be; HOST_ALLOCATION_FAILED: too many streams. Give it back. A
 * cudnnStatus_t. */
int weir__cudnn_take_handle(struct weir__cudnn *cudnn, struct CUstream_st *stream,
                            struct weir__cudnn_stream **to);
void weir__cudnn_give_handle(struct weir__cudnn *cudnn, struct weir__cudnn_stream *stream);
/** The status of a result, with the failure filled. */
int weir__cudnn_status(const struct weir__cudnn *cudnn, const char *call, int result,
                       struct weir__cuda_failure *failure);

/** cuDNN multiplies by the cuBLASLt of its own CUDA, and ends the process where it does not find
 * it. So it is found and loaded here first, for good: on the system's path, under WEIR_CUBLASLT, or
 * where packages of PyPI have it beside `of_cudnn`, a symbol of cuDNN. WEIR_ERR_NOT_FOUND. */
int weir__cudnn_need_products(size_t cuda_major, const void *of_cudnn, struct weir_error *error);
/** Whether `library` is complete, not for a newer CUDA than the driver, and finds its products;
 * fills the table of functions. WEIR_ERR_UNSUPPORTED, WEIR_ERR_NOT_FOUND, named in `error`. */
int weir__cudnn_check(struct weir__cudnn *cudnn, int driver_version, struct weir_error *error);
/** Fills the table of functions from `library`; WEIR_ERR_UNSUPPORTED, named in `error`. */
int weir__cudnn_find_functions(struct weir__cudnn *cudnn, struct weir_error *error);

/* Below, functions return a cudnnStatus_t. */

/* ---- cudnn_graph.c ---- */

/** Destroys a descriptor; takes NULL. */
void weir__cudnn_forget(const struct weir__cudnn *cudnn, void *descriptor);

enum { WEIR__CUDNN_MADE_MAX = 128, WEIR__CUDNN_OPERATIONS_MAX = 32 };

/**
 * Operations, and the descriptors that they are made of. Calls that make one do nothing once
 * `result` is not a success, and give NULL: it is asked at the end, of graph_end. Begin with all
 * zero but for `cudnn`; clean_up in any case.
 */
struct weir__cudnn_graph {
    const struct weir__cudnn *cudnn;
    void *graph; /**< by graph_end */
    int result;  /**< of the first call that failed */
    uint32_t made_count, operation_count;
    void *made[WEIR__CUDNN_MADE_MAX];             /**< owned, in order */
    void *operations[WEIR__CUDNN_OPERATIONS_MAX]; /**< of `made` */
};
void *weir__cudnn_make(struct weir__cudnn_graph *graph, enum weir__cudnn_kind kind);
void weir__cudnn_set(struct weir__cudnn_graph *graph, void *descriptor,
                     enum weir__cudnn_attribute attribute, enum weir__cudnn_type type,
                     int64_t count, const void *elements);
/** Finalizes the descriptor. */
void weir__cudnn_finish(struct weir__cudnn_graph *graph, void *descriptor);
/** An operation's last call instead: it is finalized, and belongs to the graph. */
void weir__cudnn_finish_operation(struct weir__cudnn_graph *graph, void *operation);

enum weir__cudnn_place {
    WEIR__CUDNN_STORED,  /**< the variant pack says where, under `id` */
    WEIR__CUDNN_VIRTUAL, /**< only between operations */
    WEIR__CUDNN_BY_VALUE /**< a number of the host's: as stored */
};
struct weir__cudnn_tensor {
    enum weir__cudnn_place place;
    int64_t id; /**< ignored of virtual ones */
    int type;   /**< WEIR__CUDNN_DATA_… */
    int64_t dimensions[4], strides[4];
};
void *weir__cudnn_tensor(struct weir__cudnn_graph *graph, const struct weir__cudnn_tensor *tensor);

/** y = mode(x, b), or (b, t): NULL where a mode has none. */
struct weir__cudnn_pointwise {
    int mode;     /**< WEIR__CUDNN_POINTWISE_… */
    int type;     /**< of the arithmetic */
    int64_t axis; /**< of what counts along one; else 0 */
    void *x, *b, *t, *y;
};
void weir__cudnn_pointwise(struct weir__cudnn_graph *graph,
                           const struct weir__cudnn_pointwise *pointwise);
/** The operations are all; returns the result. */
int weir__cudnn_graph_end(struct weir__cudnn_graph *graph, void *handle);
/** Leaves it as it began, but for `cudnn`. */
void weir__cudnn_graph_clean_up(struct weir__cudnn_graph *graph);

/* ---- cudnn_plan.c ---- */

enum { WEIR__CUDNN_KNOBS_MAX = 64, WEIR__CUDNN_NOTES_MAX = 32 };

struct weir__cudnn_knob {
    int type;
    int64_t value;
};
/** An engine and how it is set, apart from a graph. */
struct weir__cudnn_engine {
    int64_t index;
    int64_t knob_count, note_count;
    struct weir__cudnn_knob knobs[WEIR__CUDNN_KNOBS_MAX];
    int notes[WEIR__CUDNN_NOTES_MAX];
    int64_t graph; /**< the wish's */
};
/** An execution plan, which needs `workspace` bytes. */
struct weir__cudnn_plan {
    void *plan;
    size_t workspace;
    int64_t engine;    /**< its index … */
    uint64_t settings; /**< … and, with its knobs and graph, a hash of it */
};
struct weir__cudnn_key;
/** What is looked for: graphs that are alike but for the rows. */
struct weir__cudnn_wish {
    const struct weir__cudnn_key *shape;     /**< the key for the most rows */
    const struct weir__cudnn_graph *largest; /**< for which the engine is chosen */
    const struct weir__cudnn_graph *own;     /**< of the plan; may be `largest` */
    size_t workspace_max;
    int64_t graph; /**< which of the graphs that one shape can have */
    bool by_rows;  /**< sums are not split by how many rows there are */
    bool single;   /**< F32 numbers, which tensor cores would round */
};
/** The first engine of the heuristics that may be used (numerics.h). One that fails otherwise than
 * by what it lacks is the failure: it would serve the next time, and the next one has other bits.
 */
int weir__cudnn_plan_find(const struct weir__cudnn *cudnn, void *handle,
                          const struct weir__cudnn_wish *wish, struct weir__cudnn_plan *plan);
/** A hash of its index, knobs and graph. */
uint64_t weir__cudnn_settings(const struct weir__cudnn_engine *engine);
/** Of an engine, on a graph; NOT_SUPPORTED where its notes say that it does not repeat. On failure
 * there is no plan. */
int weir__cudnn_plan_of(const struct weir__cudnn *cudnn, void *handle,
                        const struct weir__cudnn_graph *graph,
                        const struct weir__cudnn_engine *engine, size_t workspace_max,
                        struct weir__cudnn_plan *plan);
/** What the table's calls tell of it: "cuDNN's, engine 5". */
void weir__cudnn_plan_tell(const struct weir__cudnn_plan *plan, char *text, size_t capacity);
/** Whether a result says what this library, GPU and machine do not have, now or later: 3000 … 3999,
 * and a plan that cannot be compiled, for a driver too old for its NVRTC. */
bool weir__cudnn_lacks(int result);
/** What a result comes to where there is another way: NOT_SUPPORTED if it lacks something. */
int weir__cudnn_do_without(int result);
/** Of a plan that is not finalized: for which GPU it is. */
int weir__cudnn_plan_place(const struct weir__cudnn *cudnn, void *handle,
                           const struct weir__cudnn_plan *plan);
/** What the library says of a finalized plan: its workspace. */
int weir__cudnn_plan_measure(const struct weir__cudnn *cudnn, struct weir__cudnn_plan *plan);

/* ---- cudnn_cache.c ---- */

/** For what a plan is. */
struct weir__cudnn_key {
    char text[896];
};
/** `what` and up to 24 numbers say it, but for the GPU and the library. */
void weir__cudnn_key_init(const struct weir__cudnn *cudnn, const char *what, const int64_t *numbers,
                          size_t count, struct weir__cudnn_key *key);
/** Two keys: of a plan's own shape, and of the same with the most rows. */
struct weir__cudnn_keys {
    struct weir__cudnn_key own, shape;
};
/** Takes a plan from its file: false where there is none, or it is broken, another's, dropped, or
 * refused by the library. */
bool weir__cudnn_cache_load(const struct weir__cudnn *cudnn, void *handle,
                            const struct weir__cudnn_keys *keys, size_t workspace_max,
                            struct weir__cudnn_plan *plan);
/** How many plans on disk an engine has. */
struct weir__cudnn_kept {
    char what[16]; /**< "convolution", "attention" */
    int64_t engine;
    uint32_t plans;
};
/** Those in a folder for a GPU (as weir__cudnn.gpu) and a driver, by what they are of and engine,
 * into list[most]; returns how many entries there are. What is broken counts as none. */
uint32_t weir__cudnn_kept(const char *folder, const char *gpu, int driver,
                          struct weir__cudnn_kept *list, uint32_t most);
/** Of plans that are made from now on none for `shape` is of these settings: its plan does not run.
 * False: there is no place to remember it. Any thread. */
bool weir__cudnn_drop(struct weir__cudnn *cudnn, const struct weir__cudnn_key *shape,
                      uint64_t settings);
/** What was dropped is so in processes that have the same folder, too (convolutions_keep). Any
 * thread. */
void weir__cudnn_dropped_keep(void *convolutions);
bool weir__cudnn_is_dropped(const struct weir__cudnn *cudnn, const struct weir__cudnn_key *shape,
                            uint64_t settings);
/** Writes it, over what is there; not while there are drops that are not kept, which rows of
 * another number would not know of in the next process. A failure is none of the caller's: the plan
 * is made anew then. */
void weir__cudnn_cache_save(const struct weir__cudnn *cudnn, const struct weir__cudnn_key *key,
                            const struct weir__cudnn_plan *plan);

/* ---- cudnn_convolution.c ---- */

/** The tensors' names in a graph and a variant pack. */
enum {
    WEIR__CUDNN_ID_X = 1,
    WEIR__CUDNN_ID_WEIGHT = 2,
    WEIR__CUDNN_ID_Y = 3,
    WEIR__CUDNN_ID_BIAS = 4
};
void weir__cudnn_convolution_keys(const struct weir__cudnn *cudnn,
                                  const struct weir__cuda_convolution *convolution,
                                  struct weir__cudnn_keys *keys);
/** Chosen for rows_max, made for `rows`. */
int weir__cudnn_convolution_plan(const struct weir__cudnn *cudnn, void *handle,
                                 const struct weir__cuda_convolution *convolution,
                                 size_t workspace_max, struct weir__cudnn_plan *plan);

#endif
