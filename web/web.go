// Package web embeds the page that the daemon serves at /. It is HTML, CSS and ES modules as a browser reads them.
// There is no build step, and the page loads nothing from elsewhere. Texts of models become text nodes and never
// markup. The package does not serve the files itself.
package web

import "embed"

// Files holds index.html, the files of the page in assets, and libraries with their licences in vendor. The page loads
// a library when it needs one. tools/vendor.sh fetches the libraries.
//
//go:embed index.html assets vendor
var Files embed.FS
