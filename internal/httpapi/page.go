package httpapi

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"time"

	"github.com/councild/councild/web"
	"github.com/go-chi/chi/v5"
)

// pagePolicy lets the page run its own files and call this daemon, and nothing
// else. With trusted types the browser refuses to parse a text as markup.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// page is GET /, and GET /assets/{name} for the files that the page loads.
func (a *API) page(w http.ResponseWriter, r *http.Request) error {
	name := "index.html"
	if asset := chi.URLParam(r, "name"); asset != "" {
		name = "assets/" + asset
	}
	data, err := web.Files.ReadFile(name)
	if err != nil {
		return a.notFound(w, r)
	}
	h := w.Header()
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Cache-Control", "no-cache") // A browser keeps it, but asks for its ETag: another daemon may have another page.
	h.Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256(data)))
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
	return nil
}
