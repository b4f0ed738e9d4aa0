"""Rules on what verl's start-up asks for."""
