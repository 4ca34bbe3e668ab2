// Package web embeds the page that the daemon serves at /. It is HTML, CSS and ES
// modules as a browser reads them. There is no build step, and the page loads nothing
// from elsewhere. Texts of models become text nodes and never markup. The package
// leaves to others to serve the files, and to the HTTP interface everything else.
package web

import "embed"

// Files holds index.html, the files that it loads, in assets, and the libraries that these
// load when they need them, in vendor, each with its licence. tools/vendor.sh fetches the
// libraries.
//
//go:embed index.html assets vendor
var Files embed.FS
