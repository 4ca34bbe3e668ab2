package daemon_test

import (
	"net"
	"net/http"
	"testing"

	"github.com/councild/councild/internal/daemon/daemontest"
)

// A token is replaced behind its name: the old one is refused, and the sessions of the
// others stay theirs.
func TestTokenIsReplaced(t *testing.T) {
	const before, after, bobs = "adas-first-token", "adas-second-token", "bobs-only-token:with-a-colon"
	with := func(adas string) *daemontest.Daemon {
		return daemontest.Start(t, map[string]string{
			"BASE_URL": daemontest.Quick(t), "MODELS": "a,b", "API_TOKENS": "ada:" + adas + ",bob:" + bobs,
		})
	}
	for _, tt := range []struct{ adas, refused string }{{before, after}, {after, before}} {
		d := with(tt.adas)
		d.Token = tt.adas
		id := d.Ask(t, `{"query":"x"}`).ID
		for token, want := range map[string]int{
			tt.adas: http.StatusOK, bobs: http.StatusNotFound, tt.refused: http.StatusUnauthorized,
			"ada:" + tt.adas: http.StatusUnauthorized, "ada": http.StatusUnauthorized,
		} {
			d.Token = token
			if status, data := d.Call(t, "GET", "/v1/council/"+id, ""); status != want {
				t.Errorf("%s: %d %s, want %d", token, status, data, want)
			}
		}
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
