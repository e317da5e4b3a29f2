#!/bin/sh
# SPDX-License-Identifier: MIT
# install_user.sh PROGRAM [PREFIX]: the command, what completes it, and its manual pages into PREFIX
# (~/.local), and what is missing for a shell to find them.
set -eu
program=$1
prefix=${2:-${HOME:?no home folder: name a folder after --}/.local}
weir=$prefix/bin/weir

mkdir -p "$prefix/bin" "$prefix/share/man/man1" "$prefix/share/bash-completion/completions" \
    "$prefix/share/zsh/site-functions" "$prefix/share/fish/vendor_completions.d"
prefix=$(cd "$prefix" && pwd)
weir=$prefix/bin/weir
# A command that is running cannot be written, but replaced.
cp "$program" "$weir.new"
chmod 755 "$weir.new"
mv -f "$weir.new" "$weir"

"$weir" completion bash > "$prefix/share/bash-completion/completions/weir"
"$weir" completion zsh > "$prefix/share/zsh/site-functions/_weir"
"$weir" completion fish > "$prefix/share/fish/vendor_completions.d/weir.fish"
"$weir" man > "$prefix/share/man/man1/weir.1"
for name in $("$weir" help | sed -n 's/^  \([a-z][a-z-]*\) .*/\1/p'); do
    case $name in help | man | completion) continue ;; esac
    "$weir" man "$name" > "$prefix/share/man/man1/weir-$name.1"
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
