"""What upstream's start-up is given: a launch's settings as its parser, its configuration or its container has them."""
