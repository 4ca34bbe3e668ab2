package simllm

// judgement returns ratings that find no difference on any axis. Model.Reply can write other ratings.
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
