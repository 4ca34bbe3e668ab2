// Package web embeds the page that the daemon serves at /. It is HTML, CSS and ES
// modules as a browser reads them: nothing is built, nothing is fetched from
// elsewhere, and what models wrote becomes text nodes and never markup.
package web

import "embed"

// Files holds index.html and what it loads, in assets.
//
//go:embed index.html assets
var Files embed.FS
