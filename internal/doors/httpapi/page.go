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

	"github.com/councild/councild"
	"github.com/go-chi/chi/v5"
)

// pagePolicy is the Content-Security-Policy of the page. It lets the page load its own files and call this daemon, and
// nothing else. Trusted types make the browser refuse to parse a string as markup.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types " +
	"'none'"

// pageFile is a file of the page, ready to be sent.
type pageFile struct {
	plain, packed []byte // packed is compressed with gzip. It is nil if gzip does not make the file smaller.
	etag          string
}

// pageFiles returns the files of the page by their URL paths.
var pageFiles = sync.OnceValue(func() map[string]pageFile { //nolint:gochecknoglobals // they never change
	files := map[string]pageFile{}
	for dir, path := range map[string]string{".": "/", "assets": "/assets/", "vendor": "/assets/"} {
		entries, err := fs.ReadDir(councild.Page(), dir)
		if err != nil {
			panic(err) // This cannot happen, because the files are embedded in the program.
		}
		for _, entry := range entries {
			if entry.IsDir() {
				continue
			}
			data, err := fs.ReadFile(councild.Page(), strings.TrimPrefix(dir+"/"+entry.Name(), "./"))
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

// page is GET / and GET /assets/{name}. GET / returns the page. GET /assets/{name} returns a file that the page loads.
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
	// A browser keeps the page, but checks the ETag before each use, because another daemon may have another page.
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", `"`+etag+`"`)
	// The media types do not come from package mime, because its table depends on the machine.
	media := "text/plain; charset=utf-8" // the licences
	switch ext := filepath.Ext(path); {
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
