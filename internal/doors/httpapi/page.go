package httpapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/councild/councild/web"
	"github.com/go-chi/chi/v5"
)

// pagePolicy lets the page run its own files and call this daemon, and nothing
// else. With trusted types the browser refuses to parse a text as markup.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types " +
	"'none'"

// pageFile is a file of the page as it is sent.
type pageFile struct {
	plain, packed []byte // packed with gzip, nil where that makes it no smaller
	etag          string
}

// pageFiles returns the files of the page by their paths.
var pageFiles = sync.OnceValue(func() map[string]pageFile { //nolint:gochecknoglobals // they never change
	files := map[string]pageFile{}
	for dir, path := range map[string]string{".": "/", "assets": "/assets/", "vendor": "/assets/"} {
		entries, err := fs.ReadDir(web.Files, dir)
		if err != nil {
			panic(err) // They are part of the program.
		}
		for _, entry := range entries {
			if entry.IsDir() {
				continue
			}
			data, err := fs.ReadFile(web.Files, strings.TrimPrefix(dir+"/"+entry.Name(), "./"))
			if err != nil {
				panic(err)
			}
			f := pageFile{plain: data, etag: fmt.Sprintf("%x", sha256.Sum256(data))}
			var packed bytes.Buffer
			w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // The level is valid.
			_, _ = w.Write(data)                                       // Writing to a buffer does not fail.
			_ = w.Close()
			if packed.Len() < len(data) {
				f.packed = packed.Bytes()
			}
			files[path+strings.TrimSuffix(entry.Name(), "index.html")] = f
		}
	}
	return files
})

// page is GET /, and GET /assets/{name} for the files that the page loads.
func (a *API) page(w http.ResponseWriter, r *http.Request) error {
	path := "/"
	if asset := chi.URLParam(r, "name"); asset != "" {
		path = "/assets/" + asset
	}
	file, ok := pageFiles()[path]
	if !ok {
		return a.notFound(w, r)
	}
	data := file.plain
	etag := file.etag
	h := w.Header()
	h.Add("Vary", "Accept-Encoding")
	if file.packed != nil && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") && r.Header.Get("Range") == "" {
		data = file.packed
		etag += "-gzip"
		h.Set("Content-Encoding", "gzip")
		h.Set("Content-Length", strconv.Itoa(len(data)))
	}
	h.Set("Content-Security-Policy", pagePolicy)
	// A browser keeps the page, but asks for its ETag first: another daemon may have another page.
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", `"`+etag+`"`)
	media := "text/plain; charset=utf-8" // licences
	switch ext := filepath.Ext(path); {  // The tables of the machine are not asked: they may say something else.
	case path == "/":
		media = "text/html; charset=utf-8"
	case ext == ".js":
		media = "text/javascript; charset=utf-8"
	case ext == ".css":
		media = "text/css; charset=utf-8"
	case ext == ".svg":
		media = "image/svg+xml"
	}
	h.Set("Content-Type", media)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	return nil
}
