#!/bin/sh
# SPDX-License-Identifier: MIT
# bring_mpi.sh FOLDER: makes FOLDER a virtual environment with the Python package mpich, which is
# programs and libraries alone: bin/mpiexec and lib/libmpi_abi.so.1. WEIR_NO_INSTALL=1 forbids it.
set -eu

version=5.0.2
line="python3 -m venv mpi && mpi/bin/pip install mpich==$version"

fail() {
  echo "bring_mpi: $*. With Python 3 and its venv, run: $line" >&2
  echo "and then: PATH=\$PWD/mpi/bin:\$PATH ./zigw build test -- world" >&2
  exit 1
}

[ "${WEIR_NO_INSTALL:-0}" != 1 ] || fail 'WEIR_NO_INSTALL=1 is set'
python3 -m venv "$1" >&2 || fail 'no virtual environment'
"$1/bin/python" -m pip install -q --disable-pip-version-check "mpich==$version" >&2 ||
  fail "mpich $version was not installed"
