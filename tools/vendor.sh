#!/usr/bin/env bash
# Downloads the page's libraries and their licences from npm, and checks them against
# web/vendor/SHA256SUMS. To use another version, change it below, run the script with the
# argument "write", and review the changes.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# take PACKAGE@VERSION NAME FILE copies a file of a package and the licence to web/vendor.
take() {
	local archive
	archive=$(npm pack --silent --pack-destination "$work" "$1")
	mkdir "$work/$2"
	tar -xzf "$work/$archive" -C "$work/$2"
	cp "$work/$2/package/$3" "web/vendor/$2.min.js"
	cp "$work/$2/package/LICENSE" "web/vendor/$2.LICENSE"
}
take markdown-it@14.3.3 markdown-it dist/markdown-it.min.js
take katex@0.19.1 katex dist/katex.min.js
take @highlightjs/cdn-assets@11.12.0 highlight es/highlight.min.js
cd web/vendor
chmod 644 ./*
[ "${1:-}" = write ] && sha256sum ./*.js ./*.LICENSE >SHA256SUMS
sha256sum --check --quiet SHA256SUMS
