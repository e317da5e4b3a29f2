/* SPDX-License-Identifier: MIT */
/*
 * Malformed models: texts that are no JSON (WEIR_ERR_FORMAT), JSON that is no model, and models
 * whose shapes or skips do not fit, which inferring them says. A ' reads as a ".
 */
#include "net/compile/model_file.h"
#include "io/malformed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BAD(what, part, text) MALFORMED(what, WEIR_ERR_FORMAT, part, text, 0)
#define NONE(what, part, text) MALFORMED(what, WEIR_ERR_ARGUMENT, part, text, 0)
#define STATUS(what, status, part, text) MALFORMED(what, status, part, text, 0)

#define MODEL(input, layers) "{'input':" input ",'target':null,'loss':null,'layers':" layers "}"
#define SHAPE(shape) MODEL("{'dtype':'f32','shape':" shape "}", "[]")
#define LAYER(layer) MODEL("{'dtype':'f32','shape':[3,8,8]}", "[" layer "]")
#define CONV(more) LAYER("{'type':'conv2d','out_channels':4,'kernel_size':3" more "}")

static const struct malformed list[] = {
    /* no JSON */
    BAD("an empty file", "line 1, column 0", ""),
    BAD("spaces", "end of file", " \n\n "),
    BAD("an object that does not end", "end of file", "{'input':{"),
    BAD("a string that does not end", "premature end of input", "{'input"),
    BAD("a model cut at its last byte", "end of file",
        "{'input':{'dtype':'f32','shape':[3]},'target':null,'loss':null,'layers':[]"),
    BAD("a comma at the end", "string or '}' expected", "{'layers':[],}"),
    BAD("a comma at a list's end", "unexpected token", "{'layers':[1,]}"),
    BAD("no colon", "':' expected", "{'layers' []}"),
    BAD("no comma", "'}' expected", "{'layers':[] 'loss':null}"),
    BAD("text behind", "end of file expected", "{}x"),
    BAD("a model behind", "end of file expected", "{}{}"),
    BAD("a comment", "string or '}' expected", "{// layers\n}"),
    BAD("a byte order mark", "'[' or '{' expected", "\357\273\277{}"),
    BAD("a key without quotes", "string or '}' expected", "{layers:[]}"),
    MALFORMED_RAW("single quotes", WEIR_ERR_FORMAT, "string or '}' expected", "{'layers':[]}"),
    BAD("a key twice", "duplicate object key", "{'layers':[],'layers':[]}"),
    BAD("a type twice", "duplicate object key", LAYER("{'type':'relu','type':'gelu'}")),
    BAD("a key twice, written otherwise", "duplicate object key", "{'a':1,'\\u0061':1}"),
    BAD("a zero byte", "", "{'layers\0':[]}"),
    BAD("an escaped zero", "NUL byte in object key not supported", "{'layers\\u0000':[]}"),
    BAD("bytes that are not UTF-8", "unable to decode byte 0xff", "{'\377':1}"),
    BAD("an overlong slash", "unable to decode byte 0xc0", "{'\300\257':1}"),
    BAD("a surrogate alone", "invalid Unicode", "{'\\ud800':1}"),
    BAD("an unknown escape", "invalid escape", "{'\\x41':1}"),
    BAD("a line end in a string", "unexpected newline", "{'layers\n':1}"),
    BAD("an integer of 2^63", "too big integer", "{'ignore_index':9223372036854775808}"),
    BAD("a number of 1e999", "real number overflow", "{'ignore_index':1e999}"),
    BAD("a number that is none", "invalid token", "{'ignore_index':NaN}"),
    BAD("a hexadecimal number", "", "{'ignore_index':0x10}"),
    BAD("a number of a zero and more", "", "{'ignore_index':01}"),
    BAD("True for true", "invalid token", "{'ignore_index':True}"),

    /* no model */
    NONE("a list", "a model is an object with input, layers, target and loss", "[]"),
    NONE("an empty object", "input must be an object like", "{}"),
    NONE("an unknown member", "no member 'layer'; a model has: input target layers",
         "{'input':{'dtype':'f32','shape':[3]},'layer':[]}"),
    NONE("an input that is null", "input must be an object like", MODEL("null", "[]")),
    NONE("an input that is a list", "input must be an object like", MODEL("[3]", "[]")),
    NONE("no dtype", "input.dtype must be f32 or i64", MODEL("{'shape':[3]}", "[]")),
    NONE("an unknown dtype", "input.dtype must be f32 or i64, not float32",
         MODEL("{'dtype':'float32','shape':[3]}", "[]")),
    NONE("a dtype that inputs do not have", "input.dtype is u8, but must be f32 or i64",
         MODEL("{'dtype':'u8','shape':[3]}", "[]")),
    NONE("a dtype that is a number", "input.dtype must be f32 or i64",
         MODEL("{'dtype':32,'shape':[3]}", "[]")),
    NONE("an unknown member of the input", "input has no member 'size'",
         MODEL("{'dtype':'f32','shape':[3],'size':3}", "[]")),
    NONE("no shape", "input.shape must be a list of at most 6 sizes",
         MODEL("{'dtype':'f32'}", "[]")),
    NONE("a shape that is a number", "input.shape must be a list", SHAPE("3")),
    NONE("seven dimensions", "input.shape must be a list of at most 6", SHAPE("[1,1,1,1,1,1,1]")),
    NONE("a size of 0", "input.shape[1] must be a whole number from 1 to", SHAPE("[3,0]")),
    NONE("a negative size", "input.shape[0] must be a whole number from 1 to", SHAPE("[-3]")),
    NONE("a size with a fraction", "input.shape[0] must be a whole number", SHAPE("[3.0]")),
    NONE("a size that is a text", "input.shape[0] must be a whole number", SHAPE("['3']")),
    NONE("a size of 2^31", "input.shape[0] must be a whole number from 1 to 2147483647",
         SHAPE("[2147483648]")),
    NONE("a target without a loss", "target and loss go together, but loss is missing",
         "{'input':{'dtype':'f32','shape':[3]},'target':{'dtype':'f32','shape':[3]},'layers':[]}"),
    NONE("a loss without a target", "target and loss go together, but target is missing",
         "{'input':{'dtype':'f32','shape':[3]},'loss':'mse','layers':[]}"),
    NONE("an unknown loss", "loss 'l1' is not known; losses are: cross_entropy",
         "{'input':{'dtype':'f32','shape':[3]},'target':{'dtype':'f32','shape':[3]},'loss':'l1',"
         "'layers':[]}"),
    NONE("a loss that is a number", "loss must be a text",
         "{'input':{'dtype':'f32','shape':[3]},'target':{'dtype':'f32','shape':[3]},'loss':1,"
         "'layers':[]}"),
    NONE("an ignored index with a fraction", "ignore_index must be a whole number",
         "{'input':{'dtype':'f32','shape':[3]},'ignore_index':0.5,'layers':[]}"),
    NONE("a pattern that is no list", "freeze must be a list of patterns",
         "{'input':{'dtype':'f32','shape':[3]},'freeze':'0.*','layers':[]}"),
    NONE("a pattern that is a number", "freeze must be a list of patterns",
         "{'input':{'dtype':'f32','shape':[3]},'freeze':['0.*',1],'layers':[]}"),
    NONE("an empty pattern", "freeze must be a list of patterns",
         "{'input':{'dtype':'f32','shape':[3]},'freeze':[''],'layers':[]}"),
    NONE("no layers", "layers must be a list of at most 65536 layers",
         "{'input':{'dtype':'f32','shape':[3]}}"),
    NONE("layers that are an object", "layers must be a list",
         MODEL("{'dtype':'f32','shape':[3]}", "{}")),

    /* layers */
    NONE("a layer that is a text", "layer 0: it must be an object with a type", LAYER("'relu'")),
    NONE("a layer that is null", "layer 1: it must be an object with a type",
         LAYER("{'type':'relu'},null")),
    NONE("a layer without a type", "layer 0: it must be an object with a type",
         LAYER("{'name':'a'}")),
    NONE("a type that is a number", "layer 0: it must be an object with a type",
         LAYER("{'type':2}")),
    NONE("an unknown type", "layer 0: there is no type 'conv3d'", LAYER("{'type':'conv3d'}")),
    NONE("a type in other letters", "layer 0: there is no type 'ReLU'", LAYER("{'type':'ReLU'}")),
    NONE("a type with a line end", "there is no type 'relu\\n'", LAYER("{'type':'relu\\n'}")),
    NONE("an unknown attribute", "no attribute 'kernel'; it takes: out_channels",
         CONV(",'kernel':3")),
    NONE("a missing attribute", "kernel_size is missing",
         LAYER("{'type':'conv2d','out_channels':4}")),
    NONE("an attribute that is a text", "stride must be a whole number", CONV(",'stride':'2'")),
    NONE("an attribute that is an object", "stride must be a number, a text", CONV(",'stride':{}")),
    NONE("an attribute of three numbers", "stride must be a number, a text, true, false, or two",
         CONV(",'stride':[1,1,1]")),
    NONE("an attribute of fractions", "padding must be a number", CONV(",'padding':[0.5,1]")),
    NONE("a size with a fraction in a layer", "stride must be a whole number",
         CONV(",'stride':1.5")),
    NONE("a negative padding", "padding is -1, but must be from 0", CONV(",'padding':-1")),
    NONE("a stride of 0", "stride is 0, but must be from 1", CONV(",'stride':[1,0]")),
    NONE("a size beyond 31 bits", "stride is 2147483648, but must be",
         CONV(",'stride':2147483648")),
    NONE("the most negative number", "stride is -9223372036854775808",
         CONV(",'stride':-9223372036854775808")),
    NONE("a flag that is a number", "bias must be true or false", CONV(",'bias':1")),
    NONE("a probability of 1", "p is 1, but must be from 0 to below 1",
         LAYER("{'type':'dropout','p':1}")),
    NONE("a negative probability", "p is -0.5, but must be", LAYER("{'type':'dropout','p':-0.5}")),
    NONE("a name that is a number", "its name '1' is a number",
         LAYER("{'type':'relu','name':'1'}")),
    NONE("a name that is a list", "its name must be a text", LAYER("{'type':'relu','name':[]}")),
    NONE("a name of 49 bytes", "is longer than 48 bytes",
         LAYER("{'type':'relu','name':'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'}")),
    STATUS("a name twice", WEIR_ERR_EXISTS, "the name 'a' is layer 0's already",
           LAYER("{'type':'relu','name':'a'},{'type':'gelu','name':'a'}")),
    NONE("more than 32 attributes", "more than 32 attributes",
         LAYER("{'type':'relu','a':1,'b':1,'c':1,'d':1,'e':1,'f':1,'g':1,'h':1,'i':1,'j':1,'k':1,"
               "'l':1,'m':1,'n':1,'o':1,'p':1,'q':1,'r':1,'s':1,'t':1,'u':1,'v':1,'w':1,'x':1,"
               "'y':1,'z':1,'A':1,'B':1,'C':1,'D':1,'E':1,'F':1,'G':1}")),

    /* what inferring finds */
    STATUS("a kernel larger than the image", WEIR_ERR_SHAPE, "layer 0 (conv2d)",
           LAYER("{'type':'conv2d','out_channels':4,'kernel_size':[9,3]}")),
    STATUS("groups that do not divide the channels", WEIR_ERR_SHAPE, "groups", CONV(",'groups':2")),
    STATUS("an image layer on a row of numbers", WEIR_ERR_SHAPE, "layer 0 (max_pool2d)",
           MODEL("{'dtype':'f32','shape':[3]}", "[{'type':'max_pool2d','kernel_size':2}]")),
    STATUS("a product that overflows", WEIR_ERR_SHAPE, "upsample's output is too large",
           LAYER("{'type':'upsample','scale_factor':2147483647}")),
    STATUS("a skip that is never used", WEIR_ERR_SKIP, "skip 's' is stashed by 0 (stash)",
           LAYER("{'type':'stash','skip':'s'}")),
    STATUS("a skip that is never stashed", WEIR_ERR_SKIP, "but never stashed",
           LAYER("{'type':'pop_add','skip':'s'}")),
    STATUS("a skip used before its stash", WEIR_ERR_SKIP, "before it is stashed by",
           LAYER("{'type':'pop_add','skip':'s'},{'type':'stash','skip':'s'}")),
    STATUS("a skip of another shape", WEIR_ERR_SHAPE, "layer 2 (pop_add)",
           LAYER("{'type':'stash','skip':'s'},{'type':'max_pool2d','kernel_size':2},"
                 "{'type':'pop_add','skip':'s'}")),
};

static size_t write(const struct malformed *malformed, char *bytes) {
    for (size_t i = 0; i < malformed->text_bytes; i++) {
        bytes[i] = malformed->text[i] == '\'' ? '"' : malformed->text[i];
    }
    return malformed->text_bytes;
}

static int infer(const struct weir__io *io, const struct weir_model *model,
                 struct weir_faults *faults) {
    uint32_t layers = weir_model_layer_count(model);
    struct weir_layer_facts *facts = calloc(layers + 1, sizeof *facts);
    (void)io;
    int status = facts ? weir_model_infer(model, WEIR_F32, facts, faults) : WEIR_ERR_OUT_OF_MEMORY;
    free(facts);
    return status;
}

static int read(const struct weir__io *io, const char *path, char *message, size_t capacity) {
    struct weir_faults faults = {.allocator = io->allocator};
    struct weir_model *model = NULL;
    size_t used = 0;
    int status = weir__model_file_read(io, path, &faults, &model);
    EXPECT_EQ_INT(status == WEIR_OK, model != NULL);
    if (!status) status = infer(io, model, &faults);
    weir_model_destroy(model);
    message[0] = 0;
    for (uint32_t i = 0; i < faults.kept && used < capacity; i++) {
        used += (size_t)snprintf(message + used, capacity - used, "%s\n", faults.lines[i]);
    }
    weir_faults_clean_up(&faults);
    return status;
}

const struct malformed_set malformed_model = {"model", list, sizeof list / sizeof list[0],
                                              write,   read, NULL};
