// Package councild holds the files that the program carries along: the HTTP contract, the page, and example questions.
package councild

import (
	"embed"
	"io/fs"
)

// OpenAPI is the HTTP contract, in OpenAPI 3.1.
//
//go:embed api/openapi.yaml
var OpenAPI []byte

// ReportStyle is the style of reports in the page and in HTML files.
//
//go:embed web/assets/report.css
var ReportStyle string

//go:embed web/index.html web/assets web/vendor
var web embed.FS

// Page returns the page that the daemon serves at /: index.html, its files in assets, and libraries with their licences
// in vendor. It is HTML, CSS and ES modules as a browser reads them, without a build step, and it loads nothing from
// elsewhere. The page loads a library when it needs one. tools/vendor.sh fetches the libraries.
func Page() fs.FS {
	page, err := fs.Sub(web, "web")
	if err != nil {
		panic(err) // The name is valid.
	}
	return page
}

//go:embed examples/questions.jsonl
var questions []byte

// Questions returns 60 closed questions, one JSON object a line, ten of each category. The labels sim_right and sim_wrong
// say what simulated models answer where the reference does not tell it. The caller must not change them.
func Questions() []byte { return questions }
