#!/bin/sh
# SPDX-License-Identifier: MIT
# bring.sh FOLDER PACKAGE==VERSION THEN: makes FOLDER a virtual environment with a Python package,
# of which programs and libraries alone are used. WEIR_NO_INSTALL=1 forbids it; what fails says the
# line that does it by hand, and THEN, what that is for.
set -eu
package=$2
then=$3

fail() {
  echo "bring: $*. With Python 3 and its venv, run:" \
    "python3 -m venv own && own/bin/pip install $package" >&2
  echo "and then: $then" >&2
  exit 1
}

[ "${WEIR_NO_INSTALL:-0}" != 1 ] || fail 'WEIR_NO_INSTALL=1 is set'
python3 -m venv "$1" >&2 || fail 'no virtual environment'
"$1/bin/python" -m pip install -q --disable-pip-version-check "$package" >&2 ||
  fail "$package was not installed"
