#!/bin/sh
# Writes what a package installs beside the command: manual pages and completions, as the command
# itself prints them.
#
#   sh scripts/package.sh target/release/distlock dist/package
set -eu

command=$1
out=$2

rm -rf "$out"
mkdir -p "$out/man" "$out/completions"
"$command" man --out "$out/man"
gzip -9n "$out"/man/*.1
"$command" completions bash >"$out/completions/distlock.bash"
"$command" completions zsh >"$out/completions/_distlock"
"$command" completions fish >"$out/completions/distlock.fish"
