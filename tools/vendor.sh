#!/usr/bin/env bash
# Fetches the libraries of the page from npm again, each with its licence, and checks
# them against web/vendor/SHA256SUMS. To take another version, change it here, run this
# with "write" behind it, and look at what changed.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# take PACKAGE@VERSION NAME FILE takes a file of a package, and its licence.
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
