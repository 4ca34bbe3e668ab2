package httpapi_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/councild/councild"
	"github.com/councild/councild/internal/council"
	"github.com/councild/councild/internal/doors/httpapi"
	"github.com/councild/councild/internal/pipeline"
	"github.com/councild/councild/internal/testkit/doortest"
	"github.com/google/go-cmp/cmp"
)

// The page and its files need no token. A browser may keep them until they change.
func TestPage(t *testing.T) {
	s := start(t, nil, func(o *httpapi.Options, _ *pipeline.Options) { o.Tokens = doortest.Tokens(secret) })
	types := map[string]string{
		"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8",
		"svg": "image/svg+xml", "LICENSE": "text/plain; charset=utf-8", "vendor/SHA256SUMS": "text/plain; charset=utf-8",
	}
	served := 0
	err := fs.WalkDir(councild.Page(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		served++
		path := "/" + strings.TrimSuffix(strings.Replace(name, "vendor/", "assets/", 1), "index.html")
		want, err := fs.ReadFile(councild.Page(), name)
		if err != nil {
			return err
		}
		resp, got := s.Call(t, "GET", path, "")
		if resp.StatusCode != http.StatusOK || string(got) != string(want) {
			t.Errorf("%s: %s, %d bytes", path, resp.Status, len(got))
		}
		for header, want := range map[string]string{
			"Content-Type": types[name[strings.LastIndex(name, ".")+1:]], "Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff",
		} {
			if got := resp.Header.Get(header); got != want {
				t.Errorf("%s: %s is %q, want %q", path, header, got, want)
			}
		}
		policy := resp.Header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: the policy is %q", path, policy)
		}
		resp, got = s.Call(t, "GET", path, "", "If-None-Match", resp.Header.Get("ETag"))
		if resp.StatusCode != http.StatusNotModified || len(got) > 0 {
			t.Errorf("%s, known already: %s, %d bytes", path, resp.Status, len(got))
		}
		return nil
	})
	if err != nil || served < 8 {
		t.Errorf("served %d files, %v", served, err)
	}
	for _, path := range []string{"/assets/", "/assets/none.js", "/assets/../index.html", "/assets/..%2findex.html", "/index.html"} {
		s.MustFail(t, http.StatusNotFound, council.CodeNotFound, "GET", path, "")
	}
}

// The page offers every category.
func TestPageHasTheCategories(t *testing.T) {
	page, err := fs.ReadFile(councild.Page(), "index.html")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, option := range regexp.MustCompile(`<option>(.*)</option>`).FindAllStringSubmatch(string(page), -1) {
		got = append(got, option[1])
	}
	if diff := cmp.Diff(council.Categories(), got); diff != "" {
		t.Error(diff)
	}
}

// A browser that takes gzip gets it, with an ETag of its own.
func TestPageIsPacked(t *testing.T) {
	s := start(t, nil)
	plain, whole := s.Call(t, "GET", "/assets/main.js", "", "Accept-Encoding", "identity")
	packed, small := s.Call(t, "GET", "/assets/main.js", "", "Accept-Encoding", "br, gzip")
	if packed.Header.Get("Content-Encoding") != "gzip" || len(small) >= len(whole) || plain.Header.Get("Content-Encoding") != "" {
		t.Errorf("%d bytes %v, %d bytes %v", len(whole), plain.Header, len(small), packed.Header)
	}
	if plain.Header.Get("ETag") == packed.Header.Get("ETag") || packed.Header.Get("Vary") != "Accept-Encoding" {
		t.Errorf("%v, %v", plain.Header, packed.Header)
	}
	reader, err := gzip.NewReader(bytes.NewReader(small))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(reader); err != nil || string(got) != string(whole) {
		t.Errorf("unpacked: %d bytes, %v", len(got), err)
	}
}

// The libraries of the page are what tools/vendor.sh fetched, each with its licence.
func TestVendored(t *testing.T) {
	sums, err := fs.ReadFile(councild.Page(), "vendor/SHA256SUMS")
	if err != nil {
		t.Fatal(err)
	}
	files, err := fs.ReadDir(councild.Page(), "vendor")
	if err != nil || len(files) != 7 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		data, err := fs.ReadFile(councild.Page(), "vendor/"+f.Name())
		if err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%x  ./%s\n", sha256.Sum256(data), f.Name())
		if f.Name() != "SHA256SUMS" && !strings.Contains(string(sums), line) {
			t.Errorf("SHA256SUMS lacks %s", line)
		}
	}
}
