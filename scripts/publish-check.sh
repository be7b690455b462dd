#!/bin/sh
# Packs every crate as for crates.io, and builds each from its package alone. Nothing is uploaded.
# Cargo finds the order: a crate comes after those that it depends on.
set -eu

cd "$(dirname "$0")/.."

# What crates.io asks for, and what a reader of its page looks for.
for manifest in crates/*/Cargo.toml; do
    folder=$(dirname "$manifest")
    for field in description documentation license keywords categories; do
        grep -Eq "^$field(\.workspace)? = " "$manifest" || {
            echo "$manifest has no $field" >&2
            exit 1
        }
    done
    for file in LICENSE-MIT LICENSE-APACHE; do
        [ -e "$folder/$file" ] || {
            echo "$folder has no $file: make it a link to the one of the workspace" >&2
            exit 1
        }
    done
done

# The address of the repository is not known before there is one.
grep -q '^repository = ' Cargo.toml \
    || echo "note: [workspace.package] has no repository: set it before the first release" >&2

cargo publish --workspace --dry-run --locked "$@"
