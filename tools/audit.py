"""Look up known vulnerabilities of the installed packages: python tools/audit.py.

Runs pip-audit on the environment of this interpreter, and exits with 1 if a package has a known
vulnerability. pip-audit alone reports "no known vulnerabilities" also where its service cannot be
reached; here the last line says how many packages were looked up.
"""

import json
import subprocess
import sys


def main() -> None:
    """Print each vulnerability, and how many packages were looked up."""
    command = [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off"]
    run = subprocess.run(command, capture_output=True, text=True)
    if not run.stdout:
        sys.exit(f"pip-audit failed: {run.stderr.strip()}")
    packages = json.loads(run.stdout)["dependencies"]
    audited = [package for package in packages if "skip_reason" not in package]
    vulnerable = 0
    for package in audited:
        for vulnerability in package["vulns"]:
            vulnerable += 1
            fixed = ", ".join(vulnerability["fix_versions"]) or "no version yet"
            name = f"{package['name']} {package['version']}"
            print(f"{name}: {vulnerability['id']}, fixed in {fixed}")
    print(f"{len(audited)} of {len(packages)} packages looked up, {vulnerable} vulnerabilities")
    if not audited:
        print("The vulnerability service could not be reached: nothing is known.")
    if vulnerable:
        sys.exit(1)


if __name__ == "__main__":
    main()
