package daemon_test

import (
	"bytes"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/councild/councild/internal/testkit/daemontest"
)

// A token is replaced behind its name: the old one is refused, and the new one finds
// the sessions of the old one. Sessions of another name stay another's, also where that
// name has the token.
func TestTokenIsReplaced(t *testing.T) {
	const before, after, bobs = "adas-first-token", "adas-second-token", "bobs-only-token:with-a-colon"
	url, records := daemontest.Quick(t), filepath.Join(t.TempDir(), "records.jsonl")
	var old string // a session of the first start
	for _, tt := range []struct {
		name, token, refused string
		want                 int // for the old session
	}{
		{"ada", before, after, http.StatusOK},
		{"ada", after, before, http.StatusOK},
		{"eve", after, before, http.StatusNotFound},
		{"ada", after, before, http.StatusOK},
	} {
		d := daemontest.Start(t, map[string]string{
			"BASE_URL": url, "MODELS": "a,b", "BIAS_STORE": records, "API_TOKENS": tt.name + ":" + tt.token + ",bob:" + bobs,
		})
		d.Token = tt.token
		id := d.Ask(t, `{"query":"x"}`).ID
		if old == "" {
			old = background(t, d, "What outlives a token?")
			d.Call(t, "GET", "/v1/council/"+old+"/events", "") // to their end
		}
		for token, want := range map[string]int{
			tt.token: http.StatusOK, bobs: http.StatusNotFound, tt.refused: http.StatusUnauthorized,
			tt.name + ":" + tt.token: http.StatusOK, "bob:" + tt.token: http.StatusUnauthorized, tt.name: http.StatusUnauthorized,
		} {
			d.Token = token
			if status, data := d.Call(t, "GET", "/v1/council/"+id, ""); status != want {
				t.Errorf("%s: %d %s, want %d", token, status, data, want)
			}
			if want == http.StatusOK {
				want = tt.want
			}
			if status, data := d.Call(t, "GET", "/v1/council/"+old, ""); status != want {
				t.Errorf("%s with the old session: %d %s, want %d", token, status, data, want)
			}
		}
		d.Token = tt.token
		_, list := d.Call(t, "GET", "/v1/council", "")
		if listed := bytes.Contains(list, []byte(old)); listed != (tt.want == http.StatusOK) {
			t.Errorf("%s of %s lists the old session: %v, in %s", tt.token, tt.name, listed, list)
		}
		d.End(t)
	}
}

// everywhere is a loopback listener that says that it listens on all addresses.
type everywhere struct{ net.Listener }

func (l everywhere) Addr() net.Addr {
	addr, _ := l.Listener.Addr().(*net.TCPAddr)
	return &net.TCPAddr{Port: addr.Port}
}

// The token that one start makes is the token of the next.
func TestMadeTokenAfterARestart(t *testing.T) {
	daemontest.Setenv(t, map[string]string{"BASE_URL": daemontest.Quick(t), "MODELS": "a,b"})
	var made string
	for range 2 {
		o := daemontest.Options(t)
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		o.Listener = everywhere{l}
		d := daemontest.StartWith(t, o)
		if status, data := d.Call(t, "GET", "/v1/council", ""); status != http.StatusUnauthorized {
			t.Errorf("without a token: %d %s", status, data)
		}
		if made == "" {
			made = d.Tokens()[0].Secret
		}
		d.Token = made
		if status, data := d.Call(t, "GET", "/v1/council", ""); status != http.StatusOK {
			t.Errorf("with the token of the first start: %d %s", status, data)
		}
		d.End(t)
	}
}
