"""What exists and is it well. The only room that talks to Kubernetes."""
