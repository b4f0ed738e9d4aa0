"""What a command found, as text, JSON, SARIF or GitHub annotations."""
