package httpapi

import (
	"bytes"
	"fmt"
	"io"
	"net/http"

	"github.com/councild/councild/internal/council"
)

// maxDepth is the most levels of JSON in a message of MCP. The SDK reads each level again for
// the level above, so that a megabyte of a thousand levels takes it seconds.
const maxDepth = 32

// mcp is POST /mcp: the Model Context Protocol over streamable HTTP, which Options.MCP
// speaks and which refuses what is no JSON.
func (a *API) mcp(w http.ResponseWriter, r *http.Request) error {
	if a.o.MCP == nil {
		return nothing(r, "to have it, set "+a.o.Settings.Of(council.SettingMCP)+" to true")
	}
	body, err := a.readBody(w, r)
	if err != nil {
		return err
	}
	if bytes.TrimSpace(body)[0] == '[' {
		return &council.Error{
			Code: council.CodeMalformed, Detail: "the body is a batch, which MCP no longer has; send each message alone",
		}
	}
	if deeper(body, maxDepth) {
		return &council.Error{
			Code: council.CodeMalformed, Detail: fmt.Sprintf("the body is more than %d levels deep; no tool takes such arguments", maxDepth),
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	a.o.MCP.ServeHTTP(w, r)
	return nil
}

// deeper reports whether JSON has more than so many levels.
func deeper(text []byte, levels int) bool {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			if depth++; depth > levels {
				return true
			}
		case c == '}', c == ']':
			depth--
		}
	}
	return false
}
