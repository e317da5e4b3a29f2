# SPDX-License-Identifier: MIT
"""Compiles kernels by NVRTC, into what nvcc -fatbin makes of them: an image for each architecture
("80 90 100"), and PTX of the last one.

    nvrtc.py FOLDER ARCHITECTURES OUT SOURCE.cu   OUT is the fat binary
    nvrtc.py FOLDER ARCHITECTURES --usage SOURCE.cu   prints registers and spills, as ptxas does
    nvrtc.py FOLDER ARCHITECTURES --facts         as nvcc.sh --facts

FOLDER has the Python package nvidia-cuda-nvrtc-cu12 in it. fatbinary is the toolkit's: FATBINARY,
or beside the nvcc of PATH or /usr/local/cuda. NVRTC has no headers of the system's: those that the
kernels' own headers name are made up here, of what the compiler has built in."""
import ctypes
import glob
import os
import shutil
import subprocess
import sys
import tempfile

INTEGERS = "".join(
    f"typedef {sign}{c} {'u' if sign else ''}int{bits}_t;\n"
    for bits, c in ((8, "char"), (16, "short"), (32, "int"), (64, "long"))
    for sign in ("unsigned ", "")).replace("typedef char", "typedef signed char")
HEADERS = {
    "stdint.h": "#pragma once\n" + INTEGERS +
                "typedef unsigned long uintptr_t;\ntypedef long intptr_t;\n"
                "#define UINT32_MAX 0xffffffffu\n#define INT64_C(number) number##L\n"
                "#define UINT64_C(number) number##UL\n#define INT64_MAX 0x7fffffffffffffffL\n",
    "stddef.h": "",
    "stdbool.h": "",
    "math.h": "",
}
FLAGS = ["-std=c++17", "-fmad=false", "-Isrc", "-Ikernels", "-default-device",
         "-DINFINITY=__int_as_float(0x7f800000)", "-DNAN=__int_as_float(0x7fffffff)", "--ptxas-options=-v"]


class Failed(Exception):
    pass


class Compiler:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, name, *arguments):
        result = getattr(self.library, name)(*arguments)
        if result != 0:
            raise Failed(f"{name}: {self.library.nvrtcGetErrorString(result).decode()}")

    def take(self, program, what):
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        made = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{what}", program, made)
        return made.raw

    def compile(self, path, target, what):
        """What `what` names (CUBIN, PTX), and what the compiler said."""
        program = ctypes.c_void_p()
        texts = (ctypes.c_char_p * len(HEADERS))(*[text.encode() for text in HEADERS.values()])
        names = (ctypes.c_char_p * len(HEADERS))(*[name.encode() for name in HEADERS])
        flags = [f"-arch={target}", *FLAGS]
        with open(path, "rb") as source:
            self.call("nvrtcCreateProgram", ctypes.byref(program), source.read(), path.encode(),
                      len(HEADERS), texts, names)
        try:
            given = (ctypes.c_char_p * len(flags))(*[flag.encode() for flag in flags])
            self.call("nvrtcCompileProgram", program, len(flags), given)
            made = self.take(program, what)
        except Failed as error:
            raise Failed(f"{path}, {target}: {error}\n{self.said(program)}") from None
        said = self.said(program)
        self.call("nvrtcDestroyProgram", ctypes.byref(program))
        return made, said

    def said(self, program):
        return self.take(program, "ProgramLog").rstrip(b"\0\n").decode()


def find_library(folder):
    found = glob.glob(os.path.join(folder, "**", "libnvrtc.so.12"), recursive=True)
    if not found:
        raise Failed(f"there is no libnvrtc.so.12 in {folder}")
    return found[0]


def find_fatbinary():
    places = [os.environ.get("PATH", ""), "/usr/local/cuda/bin"]
    found = os.environ.get("FATBINARY") or shutil.which("fatbinary", path=":".join(places))
    if not found:
        raise Failed("there is no fatbinary: it comes with the CUDA toolkit, beside nvcc")
    return found


def pack(out, made):
    """By LZ4, which drivers know that do not know what newer toolkits pack with."""
    with tempfile.TemporaryDirectory() as folder:
        images = []
        for kind, number, image in made:
            file = os.path.join(folder, f"{kind}-{number}")
            with open(file, "wb") as to:
                to.write(image)
            images.append(f"--image3=kind={kind},sm={number},file={file}")
        subprocess.run([find_fatbinary(), f"--create={out}", "-64", "-compress-all",
                        "-compress-mode=speed", *images], check=True)


def main(folder, architectures, out, path=None):
    compiler = Compiler(find_library(folder))
    architectures = architectures.split()
    if out == "--facts":
        major, minor = ctypes.c_int(), ctypes.c_int()
        compiler.call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        print(f'{major.value * 1000 + minor.value * 10}, "{" ".join(architectures)}+",')
        return
    made = []
    for architecture in architectures:
        image, said = compiler.compile(path, f"sm_{architecture}", "CUBIN")
        made.append(("elf", architecture, image))
        if out == "--usage":
            print(said)
    if out != "--usage":
        ptx, _ = compiler.compile(path, f"compute_{architectures[-1]}", "PTX")
        made.append(("ptx", architectures[-1], ptx.rstrip(b"\0")))
        pack(out, made)


try:
    main(*sys.argv[1:])
except (Failed, OSError, subprocess.CalledProcessError) as error:
    sys.exit(f"nvrtc: {error}")
