// The schema of .hcp.yaml and the license have their place in the repository; the package takes copies along.
"use strict";

const { copyFileSync } = require("node:fs");
const { basename, join } = require("node:path");

for (const path of ["schemas/hcp.config.1.json", "LICENSE"]) {
  copyFileSync(join(__dirname, "../..", path), join(__dirname, basename(path)));
}
