package httpapi

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/councild/councild/internal/council"
	"github.com/google/go-cmp/cmp"
)

// What a form reads without a problem is what encoding/json reads.
func FuzzForm(f *testing.F) {
	for _, body := range []string{
		`{"query":"x","models":["a","b"],"seed":1,"order":"shared","timeout_seconds":1e2,"max_cost_usd":0.5,"stream":true}`,
		`{"messages" : [ {"role":"user", "content":"a\"],}\\"} , {} ], "models": [ ], "seed": null}`,
		`{"qu\u0065ry":"\ud83d\ude00", "chairman":"}"}`,
		`{"query":"x","query":"y"}`, `{"Query":"x"}`, `{"messages":[1,[],{"role":2}]}`, `{"a":{"b":[{}]}}`, ` {} `, `null`, `[1]`, `{`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		if !utf8.ValidString(body) {
			return // readBody refuses it
		}
		read, want := council.Submission{}, council.Submission{}
		form := form{}
		if form.read([]byte(body), &read) != nil {
			if strings.HasPrefix(body, "{") && json.Valid([]byte(body)) {
				t.Errorf("%q is an object", body)
			}
			return
		}
		if form.count > 0 {
			return
		}
		decoder := json.NewDecoder(bytes.NewReader([]byte(body)))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&want); err != nil {
			t.Fatalf("%q has no problem, but %v", body, err)
		}
		if diff := cmp.Diff(want, read); diff != "" {
			t.Errorf("%q: %s", body, diff)
		}
	})
}
