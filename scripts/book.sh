#!/bin/sh
# Puts the pages of docs/SUMMARY.md into target/book/src, in the folders that they have here so that
# their links hold, and builds the book in target/book/html if mdbook is installed. In pages of the
# guide, links to the guide become links to its pages, and links to items of the crate plain text.
set -eu

cd "$(dirname "$0")/.."
src=target/book/src
rm -rf target/book
mkdir -p "$src"

# The summary itself lies one folder higher there.
sed -e 's|(\.\./|(|' -e 's|(\([a-z-]*\.md\))|(docs/\1)|' docs/SUMMARY.md >"$src/SUMMARY.md"

sed -n 's|.*(\([^)]*\.md\)).*|\1|p' "$src/SUMMARY.md" | while read -r page; do
    mkdir -p "$src/$(dirname "$page")"
    sed -E \
        -e 's/\[([^]]*)\]\(crate::guide::([a-z_]+)(#[^)]*)?\)/[\1](\2.md\3)/g' \
        -e 's/\[([^]]*)\]\(crate::[^)]*\)/\1/g' "$page" >"$src/$page"
done

# What pages show or link to beside each other.
cp docs/*.png "$src/docs/"
cp LICENSE-MIT LICENSE-APACHE "$src/"
mkdir -p "$src/deploy"
cp -R examples "$src/"
cp -R deploy/. "$src/deploy/"

if command -v mdbook >/dev/null 2>&1; then
    mdbook build
    echo "target/book/html/index.html"
else
    echo "mdbook is not installed (cargo install mdbook): the pages are in $src"
fi
