#!/bin/sh
# SPDX-License-Identifier: MIT
# install_user.sh PROGRAM [PREFIX]: the command, what completes it, and its manual pages into PREFIX
# (~/.local), and what is missing for a shell to find them.
set -eu
program=$1
prefix=${2:-${HOME:?no home folder: name a folder after --}/.local}

mkdir -p "$prefix/bin"
prefix=$(cd "$prefix" && pwd)
weir=$prefix/bin/weir
# A command that is running cannot be written, but replaced.
cp "$program" "$weir.new"
chmod 755 "$weir.new"
mv -f "$weir.new" "$weir"

# put FILE WORD...: what the command says to these words
put() {
    file=$prefix/share/$1
    shift
    mkdir -p "${file%/*}"
    "$weir" "$@" > "$file"
}
put bash-completion/completions/weir completion bash
put zsh/site-functions/_weir completion zsh
put fish/vendor_completions.d/weir.fish completion fish
put man/man1/weir.1 man
for name in $("$weir" help | sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p'); do
    case $name in help | man | completion) continue ;; esac
    put "man/man1/weir-$name.1" man "$name"
done

echo "installed $weir, completion for bash, zsh and fish, and 'man weir'"
case :$PATH: in
*:"$prefix/bin":*) ;;
*) echo "to find it, put this into ~/.profile: PATH=\"$prefix/bin:\$PATH\"" ;;
esac
echo "a new bash completes it where bash-completion is installed, else by this in ~/.bashrc:"
echo "    source <(weir completion bash)"
echo "zsh completes it by this in ~/.zshrc, before compinit:"
echo "    fpath+=($prefix/share/zsh/site-functions)"
