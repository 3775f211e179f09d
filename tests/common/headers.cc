// Owns the headers that tests share compiled (lathe_precompile in the top CMakeLists.txt).
int main() { return 0; }
