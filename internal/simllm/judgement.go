package simllm

// judgement writes the model's reply to a judgement. It rates every axis 0, which means that the answers do not differ.
// To get other ratings, set Model.Reply.
func judgement(t Task) string {
	type rating struct {
		Rating int      `json:"rating"`
		Quotes []string `json:"quotes"`
	}
	axes := map[string]rating{}
	for _, axis := range t.Axes {
		axes[axis] = rating{Quotes: []string{}}
	}
	return "Simulated: no answer treats anybody otherwise.\n\n```json\n" + string(encode(map[string]any{
		"token": t.Token,
		"axes":  axes,
	})) + "\n```"
}
