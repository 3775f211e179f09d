// Placeholder translation unit until the floor's first source lands.
